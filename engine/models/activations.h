#pragma once
#include "engine/carver.h"
#include "engine/models/vocabulary_shard.h"
#include "kernels/ops.h"

namespace tokenmill {

/// Device buffers of one step's intermediate values on one rank, sized once for the largest step. T tokens, R logits
/// rows; heads, columns and tiles are the rank's own where they are spread over the ranks of a stage.
struct Activations {
  TensorView hidden;                                 ///< [T, hidden_size] residual stream, the same on all ranks
  TensorView normed;                                 ///< [T, hidden_size]
  TensorView qkv;                                    ///< [T, (num_heads + 2 num_kv_heads) * head_dim]
  TensorView attention;                              ///< [T, num_heads * head_dim]
  TensorView gate_up;                                ///< [T, 2 * intermediate_size]
  TensorView gated;                                  ///< [T, intermediate_size]
  TensorView block_out;                              ///< [T + padding, hidden_size] (RowParallelLinear)
  TensorView parts;                                  ///< [n] f32: sums over ranks
  TensorView cos_sin;                                ///< [T, rotary_dim] f32
  TensorView row_hidden, row_attention, row_normed;  ///< [R, ...]: the rows that go on to the head
  HeadActivations head;
};

/// Takes the buffers for steps of at most max_tokens tokens and max_rows logits rows.
Activations carve_activations(const ModelConfig& config, const ModelShard& shard, DType dtype, int64_t max_tokens,
                              int64_t max_rows, Carver& carver);

/// Views of `activations` cut to T tokens and R rows; block_out, parts and head stay whole.
Activations cut(const Activations& activations, int64_t num_tokens, int64_t num_rows);

}  // namespace tokenmill
