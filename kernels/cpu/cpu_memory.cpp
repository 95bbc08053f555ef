#include "kernels/cpu/cpu_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "kernels/core/check.h"
#include "kernels/core/control_group.h"

namespace tokenmill::cpu {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

std::optional<int64_t> read_limit(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string text;
  if (!(in >> text) || text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), nullptr, 10);
  if (errno != 0 || value <= 0) return std::nullopt;
  return value;
}

}  // namespace

int64_t usable_memory_bytes() {
  int64_t usable = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  for (const std::filesystem::path directory : control_group_directories("memory"))
    for (const char* name : {"memory.max", "memory.limit_in_bytes"})  // of versions 2 and 1
      if (const auto limit = read_limit(directory / name)) usable = std::min(usable, *limit);
  return usable;
}

Buffer CpuMemory::allocate(int64_t num_bytes) {
  TM_ASSERT(num_bytes >= 0, "{} bytes", num_bytes);
  const Device device{DeviceKind::kCpu, 0};
  if (num_bytes == 0) return Buffer(nullptr, 0, device, nullptr);
  const int64_t free_bytes = total_ - used_bytes();
  const bool huge = num_bytes >= kHugePage;
  // One huge page more than asked for, so that the buffer can start on a huge page.
  const size_t mapped = static_cast<size_t>(num_bytes) + (huge ? static_cast<size_t>(kHugePage) : 0);
  void* mapping = MAP_FAILED;
  if (num_bytes <= free_bytes) {
    mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  if (mapping == MAP_FAILED) {
    throw Error(ErrorKind::kDevice, "cpu: cannot allocate {} bytes of memory; {} of {} are free", num_bytes, free_bytes,
                total_);
  }
  auto address = reinterpret_cast<uintptr_t>(mapping);
  if (huge) {
    address = (address + kHugePage - 1) / kHugePage * kHugePage;
    madvise(reinterpret_cast<void*>(address), static_cast<size_t>(num_bytes), MADV_HUGEPAGE);  // advice: may be refused
  }
  const int64_t used = used_.fetch_add(num_bytes, std::memory_order_relaxed) + num_bytes;
  int64_t peak = peak_.load(std::memory_order_relaxed);
  while (peak < used && !peak_.compare_exchange_weak(peak, used, std::memory_order_relaxed)) {
  }
  return Buffer(reinterpret_cast<void*>(address), num_bytes, device, [this, mapping, mapped](void*, int64_t bytes) {
    munmap(mapping, mapped);
    used_.fetch_sub(bytes, std::memory_order_relaxed);
  });
}

}  // namespace tokenmill::cpu
