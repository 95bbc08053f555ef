#include "parallel/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "kernels/core/check.h"

namespace tokenmill::parallel {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

[[noreturn]] void fail(int64_t num_bytes, const std::string& action) {
  const int error = errno;
  throw Error(ErrorKind::kDevice, "cannot share {} bytes of memory between the ranks of a node: {}: {} (errno {})",
              num_bytes, action, std::strerror(error), error);
}

/// Memory without a name in any file system: gone with its last user, and not bounded by the size of /dev/shm.
Descriptor create(int64_t num_bytes) {
  Descriptor made(memfd_create("tokenmill", MFD_CLOEXEC));
  if (made.get() < 0) fail(num_bytes, "memfd_create");
  if (ftruncate(made.get(), num_bytes) != 0) fail(num_bytes, "ftruncate");
  return made;
}

/// Which file a descriptor is of, on this machine.
std::array<uint64_t, 2> identity(const Descriptor& file, int64_t num_bytes) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail(num_bytes, "fstat");
  return {status.st_dev, status.st_ino};
}

/// Where the other ranks find what rank 0 made.
struct Place {
  int64_t pid = 0;
  int64_t descriptor = 0;
  std::array<uint64_t, 2> identity{};
};

/// In another process namespace than rank 0's the number is nobody's, or another process's: never map what that has.
Descriptor open_at(const Place& place, int64_t num_bytes) {
  const std::string path = fmt::format("/proc/{}/fd/{}", place.pid, place.descriptor);
  Descriptor opened(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (opened.get() < 0) fail(num_bytes, "open " + path);
  if (identity(opened, num_bytes) != place.identity)
    throw Error(
        ErrorKind::kDevice,
        "cannot share {} bytes of memory between the ranks of a node: {} is not what the rank that made the memory "
        "has there; do the ranks run in different process namespaces (containers)?",
        num_bytes, path);
  return opened;
}

}  // namespace

SharedMemory::SharedMemory(const Comm& comm, int64_t num_bytes) {
  TM_ASSERT(num_bytes >= 0, "{} bytes", num_bytes);
  if (num_bytes == 0) return;
  Descriptor memory;
  Place place;
  const auto on_rank_0 = [&] {
    if (comm.rank() != 0) return;
    memory = create(num_bytes);
    place = {getpid(), memory.get(), identity(memory, num_bytes)};
  };
  agree_on(comm, on_rank_0);
  place = gather_values(comm, place)[0];
  const auto map_it = [&] {
    if (comm.rank() != 0) memory = open_at(place, num_bytes);
    // Address space of one huge page more than asked for, so that the memory can start on one.
    const auto size = static_cast<size_t>(num_bytes);
    const size_t reserved = size + (size >= kHugePage ? kHugePage : 0);
    void* const mapping = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) fail(num_bytes, "mmap");
    mapping_ = mapping;
    mapped_bytes_ = reserved;
    auto address = reinterpret_cast<uintptr_t>(mapping);
    if (size >= kHugePage) address = (address + kHugePage - 1) / kHugePage * kHugePage;
    void* const start = reinterpret_cast<void*>(address);
    if (mmap(start, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory.get(), 0) == MAP_FAILED)
      fail(num_bytes, "mmap");
    madvise(start, size, MADV_HUGEPAGE);  // advice: may be refused
    bytes_ = {static_cast<std::byte*>(start), size};
  };
  try {
    agree_on(comm, map_it);
  } catch (...) {
    SharedMemory let_go(std::move(*this));
    throw;
  }
}

SharedMemory::~SharedMemory() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

}  // namespace tokenmill::parallel
