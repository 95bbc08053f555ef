#pragma once
#include <vector>

#include "tests/support/paged_sequences.h"
#include "tests/support/reference.h"

namespace tokenmill::test {

struct AttentionShape {
  int64_t heads, kv_heads, k_dim, v_dim, block_size;
};

/// Two layers, of which attention_step() uses the second.
KvSpec spec_of(const AttentionShape& shape, DType dtype);

/// All q, k, v of one sequence: the truth that any chunking has to reproduce.
struct AttentionSequence {
  AttentionSequence(const AttentionShape& shape, DType dtype, int64_t length, uint64_t seed);
  int64_t length() const { return q.view().rows(); }
  HostTensor q, k, v;
};

/// Rows [from_row, from_row + count) of one tensor to rows of another from to_row on.
void copy_rows(const HostTensor& from, int64_t from_row, const HostTensor& to, int64_t to_row, int64_t count);

struct AttentionStep {
  bool attend = true;   ///< false: keys and values are stored, the result means nothing
  int64_t padding = 8;  ///< elements between the rows of q and out
};

/// One step over sequences, without rotation: keys and values stored, then attention. The outputs of all its tokens
/// [tokens, heads * v_dim]; checks that nothing was written between their rows.
HostTensor attention_step(Ops& ops, PagedSequences& paged, const AttentionShape& shape, DType dtype,
                          const std::vector<const AttentionSequence*>& sequences,
                          const std::vector<SequenceInput>& inputs, const AttentionParams& params,
                          const AttentionStep& how = {});

/// What the reference gives for tokens [first, length) of a sequence.
reference::Values attention_of(const AttentionShape& shape, const AttentionSequence& sequence,
                               const AttentionParams& params, int64_t first = 0);

}  // namespace tokenmill::test
