#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/communicator.h"

namespace tokenmill::parallel {

/// A ring of slots in memory that one writer and some readers (processes or threads) share. Every reader sees every
/// slot, in order; a slot is written again when all readers have let go of it. No system call, no lock: the writer
/// raises a sequence number when a slot is full, each reader one of its own when it is done with it, every number in a
/// cache line of its own.
struct LaneShape {
  int num_readers = 1;
  int64_t num_slots = 1;
  int64_t slot_bytes = 64;  ///< payload; a multiple of 64
};

/// Memory for one lane; zeroed before first use, aligned to 64 bytes.
int64_t lane_bytes(const LaneShape& shape);

/// What a full slot holds, so that ranks that started different transfers notice.
struct SlotLabel {
  int64_t part_bytes = 0;  ///< of the whole transfer, between two ranks
  int64_t begin = 0;       ///< of this slot's piece within a part
  TransferKind kind = TransferKind::kSend;
  bool operator==(const SlotLabel&) const = default;
};

struct alignas(64) LaneFlag {
  std::atomic<uint64_t> value;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "flags are shared by processes");

class LaneWriter {
 public:
  LaneWriter(std::byte* memory, const LaneShape& shape);
  /// Where the next slot's payload goes, or nullptr while a reader still has it.
  std::byte* free_slot();
  /// Hands the slot that free_slot() gave to the readers.
  void publish(const SlotLabel& label);

 private:
  LaneShape shape_;
  LaneFlag* published_;
  LaneFlag* consumed_;  // [num_readers]
  std::byte* slots_;
  uint64_t next_ = 0;
  uint64_t limit_;  // next_ may grow to this: what the slowest reader had let go of when last asked, plus num_slots
};

class LaneReader {
 public:
  /// reader: 0-based among the lane's readers.
  LaneReader(std::byte* memory, const LaneShape& shape, int reader);
  /// The payload of the oldest slot not released, or nullptr when nothing has arrived.
  const std::byte* full_slot();
  const SlotLabel& label() const;  ///< of the slot that full_slot() gave
  void release();

 private:
  LaneShape shape_;
  LaneFlag* published_;
  LaneFlag* consumed_;
  std::byte* slots_;
  uint64_t next_ = 0;
  uint64_t limit_ = 0;  // as last read from published_
};

}  // namespace tokenmill::parallel
