#include "engine/models/activations.h"

#include "engine/models/row_parallel.h"

namespace tokenmill {

Activations carve_activations(const ModelConfig& c, const ModelShard& shard, DType dtype, int64_t tokens, int64_t rows,
                              Carver& carver) {
  Activations a;
  const int64_t q = shard.heads(c).size() * c.head_dim, kv = shard.kv_heads(c).size() * c.head_dim;
  const int64_t intermediate = shard.intermediate(c).size();
  a.hidden = carver.take(dtype, {tokens, c.hidden_size});
  a.normed = carver.take(dtype, {tokens, c.hidden_size});
  a.qkv = carver.take(dtype, {tokens, q + 2 * kv});
  a.attention = carver.take(dtype, {tokens, q});
  a.gate_up = carver.take(dtype, {tokens, 2 * intermediate});
  a.gated = carver.take(dtype, {tokens, intermediate});
  a.block_out = carver.take(dtype, {tokens + RowParallelLinear::padding_rows(shard.grid), c.hidden_size});
  a.parts = carver.take(DType::kF32, {RowParallelLinear::part_floats(shard.grid, tokens, c.hidden_size)});
  a.cos_sin = carver.take(DType::kF32, {tokens, c.rope.rotary_dim});
  a.row_hidden = carver.take(dtype, {rows, c.hidden_size});
  a.row_attention = carver.take(dtype, {rows, q});
  a.row_normed = carver.take(dtype, {rows, c.hidden_size});
  a.head = carve_head(c, shard, rows, carver);
  return a;
}

Activations cut(const Activations& a, int64_t num_tokens, int64_t num_rows) {
  Activations out = a;
  for (TensorView* v : {&out.hidden, &out.normed, &out.qkv, &out.attention, &out.gate_up, &out.gated, &out.cos_sin}) {
    *v = v->slice_rows(0, num_tokens);
  }
  for (TensorView* v : {&out.row_hidden, &out.row_attention, &out.row_normed}) *v = v->slice_rows(0, num_rows);
  return out;
}

}  // namespace tokenmill
