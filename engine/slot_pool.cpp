#include "engine/slot_pool.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill {

SlotPool::SlotPool(int64_t num_slots, int64_t num_adjusted) : num_adjusted_(std::min(num_slots, num_adjusted)) {
  for (int64_t slot = num_slots - 1; slot >= 0; --slot) give_back(static_cast<int32_t>(slot));
}

int32_t SlotPool::take(bool adjusted) {
  TM_ASSERT(has_one(adjusted), "no slot is free");
  std::vector<int32_t>& slots = adjusted || plain_.empty() ? with_tables_ : plain_;
  const int32_t slot = slots.back();
  slots.pop_back();
  return slot;
}

void SlotPool::give_back(int32_t slot) { (slot < num_adjusted_ ? with_tables_ : plain_).push_back(slot); }

}  // namespace tokenmill
