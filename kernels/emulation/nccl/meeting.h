#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

/// Where the ranks of one emulated communicator meet: POSIX shared memory under a name that the unique id carries, so
/// ranks may be processes or threads and need nothing else in common.
namespace tokenmill::emulation {

constexpr int kMaxRanks = 16;
constexpr size_t kSlotBytes = 64 << 10;  // of a collective, per rank and turn
constexpr size_t kBoxBytes = 32 << 10;   // of a message, per turn

/// What a rank calls; the ranks of a collective must agree.
struct Announcement {
  char call[16] = {};
  uint64_t count = 0;
  int32_t type = 0, reduction = 0, root = 0;
  bool operator==(const Announcement&) const = default;
};

struct Barrier {
  std::atomic<uint32_t> arrived, generation;
};

/// One turn of a message from one rank to another.
struct Box {
  std::atomic<uint32_t> full;
  uint32_t num_bytes;
  uint64_t message_bytes;
  char data[kBoxBytes];
};

/// Starts as zeros; only touched pages take memory.
struct Region {
  std::atomic<uint32_t> num_ranks, joined, aborted;
  std::atomic<int32_t> processes[kMaxRanks];  // 0: the rank has not joined
  Barrier streams, hosts;                     // work of streams; calls of the host
  Announcement announced[kMaxRanks];
  int32_t colors[kMaxRanks], keys[kMaxRanks];
  alignas(64) char slots[kMaxRanks][kSlotBytes];
  Box boxes[kMaxRanks][kMaxRanks];  // [from][to]
};

class Meeting {
 public:
  /// Makes the memory, before any rank joins: a rank that comes after the others gave up must not wait in new memory.
  static bool create(const std::string& name, std::string& text);
  /// Waits for all ranks. nullptr, and text says why, if the memory cannot be had or the ranks contradict each other.
  static std::shared_ptr<Meeting> join(const std::string& name, int num_ranks, int rank, std::string& text);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  Region& region() { return *region_; }
  int rank() const { return rank_; }
  int num_ranks() const { return num_ranks_; }
  const std::string& name() const { return name_; }

  /// False if a rank aborted or its process is gone.
  bool wait_until(const std::function<bool()>& condition);
  bool barrier(Barrier& barrier);
  void abort() { region_->aborted = 1; }
  bool aborted() const { return region_->aborted != 0; }

 private:
  Meeting(std::string name, Region* region, int num_ranks, int rank)
      : name_(std::move(name)), region_(region), num_ranks_(num_ranks), rank_(rank) {}
  bool all_alive() const;
  std::string name_;
  Region* region_;
  int num_ranks_, rank_;
};

}  // namespace tokenmill::emulation
