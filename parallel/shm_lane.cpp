#include "parallel/shm_lane.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill::parallel {
namespace {

// A lane: published flag, one consumed flag per reader, slots. A slot: a line for its label, then the payload.
constexpr int64_t kLineBytes = 64;
static_assert(sizeof(LaneFlag) == kLineBytes && sizeof(SlotLabel) <= kLineBytes);

std::byte* slot_of(std::byte* slots, const LaneShape& shape, uint64_t sequence) {
  return slots +
         static_cast<int64_t>(sequence % static_cast<uint64_t>(shape.num_slots)) * (kLineBytes + shape.slot_bytes);
}

LaneFlag* flags_in(std::byte* memory) { return reinterpret_cast<LaneFlag*>(memory); }

std::byte* slots_in(std::byte* memory, const LaneShape& shape) { return memory + (1 + shape.num_readers) * kLineBytes; }

void check(const std::byte* memory, const LaneShape& shape) {
  TM_ASSERT(shape.num_readers >= 1 && shape.num_slots >= 1 && shape.slot_bytes >= kLineBytes &&
            shape.slot_bytes % kLineBytes == 0);
  TM_ASSERT(reinterpret_cast<uintptr_t>(memory) % kLineBytes == 0);
}

}  // namespace

int64_t lane_bytes(const LaneShape& shape) {
  return (1 + shape.num_readers) * kLineBytes + shape.num_slots * (kLineBytes + shape.slot_bytes);
}

LaneWriter::LaneWriter(std::byte* memory, const LaneShape& shape)
    : shape_(shape),
      published_(flags_in(memory)),
      consumed_(flags_in(memory) + 1),
      slots_(slots_in(memory, shape)),
      limit_(static_cast<uint64_t>(shape.num_slots)) {
  check(memory, shape);
}

std::byte* LaneWriter::free_slot() {
  if (next_ == limit_) {
    uint64_t slowest = next_;
    for (int reader = 0; reader < shape_.num_readers; ++reader)
      slowest = std::min(slowest, consumed_[reader].value.load(std::memory_order_acquire));
    limit_ = slowest + static_cast<uint64_t>(shape_.num_slots);
    if (next_ == limit_) return nullptr;
  }
  return slot_of(slots_, shape_, next_) + kLineBytes;
}

void LaneWriter::publish(const SlotLabel& label) {
  TM_DEBUG_ASSERT(next_ < limit_);
  *reinterpret_cast<SlotLabel*>(slot_of(slots_, shape_, next_)) = label;
  published_->value.store(++next_, std::memory_order_release);
}

LaneReader::LaneReader(std::byte* memory, const LaneShape& shape, int reader)
    : shape_(shape),
      published_(flags_in(memory)),
      consumed_(flags_in(memory) + 1 + reader),
      slots_(slots_in(memory, shape)) {
  check(memory, shape);
  TM_ASSERT(reader >= 0 && reader < shape.num_readers);
}

const std::byte* LaneReader::full_slot() {
  if (next_ == limit_) {
    limit_ = published_->value.load(std::memory_order_acquire);
    if (next_ == limit_) return nullptr;
  }
  return slot_of(slots_, shape_, next_) + kLineBytes;
}

const SlotLabel& LaneReader::label() const {
  return *reinterpret_cast<const SlotLabel*>(slot_of(slots_, shape_, next_));
}

void LaneReader::release() {
  TM_DEBUG_ASSERT(next_ < limit_);
  consumed_->value.store(++next_, std::memory_order_release);
}

}  // namespace tokenmill::parallel
