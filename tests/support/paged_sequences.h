#pragma once
#include <memory>
#include <vector>

#include "kernels/ops.h"
#include "tests/support/random.h"

namespace tokenmill::test {

/// What one sequence does in a step: `tokens` new tokens after `context` earlier ones.
struct SequenceInput {
  int64_t context = 0, tokens = 0;
};

/// A KV pool with shuffled block tables and the step tensors of any mix of chunks over it. The pool starts poisoned:
/// every value NaN (or infinite), so that a slot read before it was written shows.
class PagedSequences {
 public:
  PagedSequences(Ops& ops, const KvSpec& spec, int64_t num_sequences, int64_t max_length, double poison);
  KvPool& pool() { return *pool_; }
  /// The tensors of a step; valid until the next call.
  const StepTensors& step(const std::vector<SequenceInput>& inputs);
  /// What the pool holds for a token of a sequence, through export_blocks.
  double stored_key(int64_t sequence, int64_t layer, int64_t token, int64_t head, int64_t dim);
  double stored_value(int64_t sequence, int64_t layer, int64_t token, int64_t head, int64_t dim);

 private:
  double stored(int64_t sequence, int64_t layer, bool key, int64_t token, int64_t head, int64_t dim);
  int32_t block_of(int64_t sequence, int64_t token) const;
  Ops& ops_;
  KvSpec spec_;
  int64_t blocks_per_sequence_;
  Buffer storage_;
  std::unique_ptr<KvPool> pool_;
  std::vector<int32_t> blocks_;  // [sequence][block]
  std::vector<HostTensor> tensors_;
  StepTensors step_;
};

}  // namespace tokenmill::test
