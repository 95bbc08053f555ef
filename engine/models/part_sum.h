#pragma once
#include <cstdint>

#include "engine/models/shard.h"
#include "kernels/ops.h"
#include "parallel/communicator.h"

namespace tokenmill {

/// Elements [offset, offset + product of shape) of a dense buffer as a dense tensor.
TensorView shaped(TensorView flat, std::initializer_list<int64_t> shape, int64_t offset = 0);

/// A sum of parts [num_tokens, width] that the ranks of a tensor-parallel group have made, num_own each, in the order of
/// the parts. Short sums go in one transfer: every rank gets all parts. Long ones of more than two ranks with a part
/// each go in two: each rank adds the parts of its share of the tokens, then hands the sums round. The same bits.
class PartSum {
 public:
  /// room: a buffer of the parts' dtype with at least num_elements(); taken until the end of the sum.
  PartSum(const parallel::Communicator& tp, TensorView room, int64_t num_own, int64_t num_tokens, int64_t width);

  /// Elements of the buffer for any number of tokens up to max_tokens, of turns (RowParallelLinear::two_turns) too.
  static int64_t num_elements(const ModelGrid& grid, int64_t max_tokens, int64_t width, int64_t element_bytes);
  static bool takes_two_transfers(int64_t num_ranks, int64_t num_own, int64_t part_bytes);

  /// Where this rank's part i is to be made: [num_tokens, width].
  TensorView own(int64_t i) const;
  /// When the own parts have been made.
  void start(parallel::Communicator& tp);

  bool in_one_transfer() const { return !in_two_; }
  /// In one transfer: waits for it; all parts [parts, num_tokens, width].
  TensorView wait_parts(parallel::Communicator& tp) const;
  /// Waits, adds and, in two transfers, hands round: the sums [num_tokens, width], + bias where it is defined. block
  /// [num_tokens + ranks - 1, width]: where they come to lie.
  TensorView finish(Ops& ops, parallel::Communicator& tp, TensorView block, TensorView bias) const;

 private:
  int64_t rank_, ranks_, num_own_, num_tokens_, width_;
  bool in_two_;
  int64_t share_;  // tokens that a rank adds
  TensorView room_;
  parallel::Communicator::Transfer transfer_ = 0;
};

}  // namespace tokenmill
