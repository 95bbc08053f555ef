#pragma once
#include <cstdint>
#include <vector>

namespace tokenmill {

/// The free slots of a replica. Those below num_adjusted have rows in the tables per token id, and a sequence with
/// penalties or biases can only have one of these; the others take one when no other is left.
class SlotPool {
 public:
  SlotPool(int64_t num_slots, int64_t num_adjusted);

  int64_t size() const { return static_cast<int64_t>(with_tables_.size() + plain_.size()); }
  /// There is a slot for a sequence that is adjusted, or is not.
  bool has_one(bool adjusted) const { return !with_tables_.empty() || (!adjusted && !plain_.empty()); }
  /// Takes one; only when there is one.
  int32_t take(bool adjusted);
  void give_back(int32_t slot);

 private:
  int64_t num_adjusted_;
  std::vector<int32_t> with_tables_, plain_;  // stacks
};

}  // namespace tokenmill
