#include "kernels/emulation/nccl/meeting.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>

namespace tokenmill::emulation {
namespace {

static_assert(std::atomic<uint32_t>::is_always_lock_free, "atomics are shared between processes");

/// Turns of waiting between two looks at whether the other processes still live.
constexpr int kTurnsPerLook = 4096;

std::string system_error(const char* what, const std::string& name) {
  return fmt::format("cannot {} shared memory {}: {}", what, name, std::strerror(errno));
}

/// Names made by this process; those where nobody met are removed when it ends.
struct CreatedNames {
  std::mutex mutex;
  std::set<std::string> names;
  ~CreatedNames() {
    for (const std::string& name : names) shm_unlink(name.c_str());
  }
};
CreatedNames& created_names() {
  static CreatedNames names;
  return names;
}

Region* map_region(const std::string& name, std::string& text) {
  const int file = shm_open(name.c_str(), O_RDWR, 0600);
  if (file < 0) {
    text = errno == ENOENT ? "the other ranks have given up" : system_error("open", name);
    return nullptr;
  }
  void* memory = mmap(nullptr, sizeof(Region), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) text = system_error("map", name);
  close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<Region*>(memory);
}

}  // namespace

bool Meeting::create(const std::string& name, std::string& text) {
  const int file = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  const bool made = file >= 0 && ftruncate(file, sizeof(Region)) == 0;
  if (!made) text = system_error("make", name);
  if (file >= 0) close(file);
  const std::lock_guard lock(created_names().mutex);
  if (file >= 0) created_names().names.insert(name);
  return made;
}

std::shared_ptr<Meeting> Meeting::join(const std::string& name, int num_ranks, int rank, std::string& text) {
  Region* region = map_region(name, text);
  if (region == nullptr) return nullptr;
  std::shared_ptr<Meeting> meeting(new Meeting(name, region, num_ranks, rank));
  uint32_t agreed = 0;
  const auto mine = static_cast<uint32_t>(num_ranks);
  if (!region->num_ranks.compare_exchange_strong(agreed, mine) && agreed != mine) {
    text = fmt::format("rank {} says {} ranks, another says {}", rank, num_ranks, agreed);
    meeting->abort();
    return nullptr;
  }
  if (region->processes[rank].exchange(getpid()) != 0) {
    text = fmt::format("rank {} has joined already", rank);
    meeting->abort();
    return nullptr;
  }
  ++region->joined;
  const bool complete = meeting->wait_until([&] { return region->joined == mine; });
  if (rank == 0) shm_unlink(name.c_str());
  if (!complete) text = "another rank gave up";
  return complete ? meeting : nullptr;
}

Meeting::~Meeting() { munmap(region_, sizeof(Region)); }

bool Meeting::all_alive() const {
  for (int rank = 0; rank < num_ranks_; ++rank) {
    const int32_t process = region_->processes[rank];
    if (process != 0 && kill(process, 0) != 0 && errno == ESRCH) return false;
  }
  return true;
}

bool Meeting::wait_until(const std::function<bool()>& condition) {
  for (int turn = 1; !condition(); ++turn) {
    if (turn % kTurnsPerLook == 0 && !all_alive()) abort();
    if (aborted()) return false;
    sched_yield();
  }
  return true;
}

bool Meeting::barrier(Barrier& barrier) {
  const uint32_t generation = barrier.generation;
  if (++barrier.arrived == static_cast<uint32_t>(num_ranks_)) {
    barrier.arrived = 0;
    ++barrier.generation;
    return true;
  }
  return wait_until([&] { return barrier.generation != generation; });
}

}  // namespace tokenmill::emulation
