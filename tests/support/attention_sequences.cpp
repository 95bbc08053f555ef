#include "tests/support/attention_sequences.h"

#include <doctest/doctest.h>

namespace tokenmill::test {
namespace {

/// values [length, num_heads * dim] by head.
std::vector<reference::Values> split_heads(const reference::Values& values, int64_t num_heads, int64_t dim) {
  std::vector<reference::Values> heads(static_cast<size_t>(num_heads));
  for (auto at = values.begin(); at != values.end();) {
    for (reference::Values& head : heads) {
      head.insert(head.end(), at, at + dim);
      at += dim;
    }
  }
  return heads;
}

}  // namespace

KvSpec spec_of(const AttentionShape& shape, DType dtype) {
  return {.num_layers = 2,
          .num_kv_heads = shape.kv_heads,
          .k_dim = shape.k_dim,
          .v_dim = shape.v_dim,
          .dtype = dtype,
          .block_size = shape.block_size};
}

AttentionSequence::AttentionSequence(const AttentionShape& shape, DType dtype, int64_t length, uint64_t seed)
    : q(dtype, {length, shape.heads * shape.k_dim}),
      k(dtype, {length, shape.kv_heads * shape.k_dim}),
      v(dtype, {length, shape.kv_heads * shape.v_dim}) {
  Random random(seed);
  q.fill_random(random, -2, 2);
  k.fill_random(random, -2, 2);
  v.fill_random(random);
}

void copy_rows(const HostTensor& from, int64_t from_row, const HostTensor& to, int64_t to_row, int64_t count) {
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t c = 0; c < from.view().cols(); ++c) {
      HostTensor::set_at(to.view(), to_row + r, c, from.get(from_row + r, c));
    }
  }
}

HostTensor attention_step(Ops& ops, PagedSequences& paged, const AttentionShape& shape, DType dtype,
                          const std::vector<const AttentionSequence*>& sequences,
                          const std::vector<SequenceInput>& inputs, const AttentionParams& params,
                          const AttentionStep& how) {
  const StepTensors& step = paged.step(inputs);
  const int64_t tokens = step.positions.cols();
  HostTensor q(dtype, {tokens, shape.heads * shape.k_dim}, how.padding),
      k(dtype, {tokens, shape.kv_heads * shape.k_dim}), v(dtype, {tokens, shape.kv_heads * shape.v_dim}),
      out(dtype, {tokens, shape.heads * shape.v_dim}, how.padding);
  int64_t row = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    copy_rows(sequences[i]->q, inputs[i].context, q, row, inputs[i].tokens);
    copy_rows(sequences[i]->k, inputs[i].context, k, row, inputs[i].tokens);
    copy_rows(sequences[i]->v, inputs[i].context, v, row, inputs[i].tokens);
    row += inputs[i].tokens;
  }
  HostTensor cos_sin(DType::kF32, {tokens, 0});
  const KvLayer layer{&paged.pool(), 1, 0};
  ops.plan(step);
  ops.rope_and_store_kv({.q = q, .k = k, .v = v, .cos_sin = cos_sin}, step, layer);
  if (how.attend) ops.attention(out, q, step, layer, params);
  ops.stream().synchronize();
  CHECK(out.gaps_intact());
  return out;
}

reference::Values attention_of(const AttentionShape& shape, const AttentionSequence& sequence,
                               const AttentionParams& params, int64_t first) {
  const auto q = sequence.q.values();
  const auto keys = split_heads(sequence.k.values(), shape.kv_heads, shape.k_dim);
  const auto values = split_heads(sequence.v.values(), shape.kv_heads, shape.v_dim);
  const reference::AttentionHead one_head{shape.k_dim, shape.v_dim, params.scale, params.softcap, params.window};
  reference::Values out;
  for (int64_t t = first; t < sequence.length(); ++t) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const auto kv_head = static_cast<size_t>(h / (shape.heads / shape.kv_heads));
      const auto one = reference::attention(one_head, &q[static_cast<size_t>((t * shape.heads + h) * shape.k_dim)], t,
                                            keys[kv_head], values[kv_head]);
      out.insert(out.end(), one.begin(), one.end());
    }
  }
  return out;
}

}  // namespace tokenmill::test
