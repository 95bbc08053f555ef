#pragma once
// Logits over a vocabulary as sampling kernels see them, and what changes them before a token is chosen; semantics in
// kernels/ops.h (HeadTiles, Ops::pick). Plain structs: kernels get them by value.
#include <cstdint>

#include "kernels/device/cuda.h"
#include "kernels/ops.h"

namespace tokenmill::cuda {

/// Raw logits of R rows: in one piece from first_tile on, or in the shards of P ranks.
struct LogitsView {
  const float* data;
  int64_t row_stride, shard_stride;  // floats
  VocabShards shards;
  int64_t first_tile;

  __device__ const float* tile(int64_t row, int64_t t) const {
    const float* base = data + row * row_stride;
    if (shards.num_shards == 1) return base + (t - first_tile) * kVocabTile;
    const int64_t shard = shards.shard_of(t);
    return base + shard * shard_stride + (t - shards.first_tile(shard)) * kVocabTile;
  }
  __device__ float at(int64_t row, int64_t id) const { return tile(row, id / kVocabTile)[id % kVocabTile]; }
};

/// HeadTiles::logits of a whole vocabulary.
inline LogitsView whole_logits(const TensorView& logits, int64_t vocab_size) {
  const bool sharded = logits.rank() == 3;
  return {.data = static_cast<const float*>(logits.data()),
          .row_stride = logits.row_stride(),
          .shard_stride = sharded ? logits.size(1) * logits.row_stride() : 0,
          .shards = {vocab_size, sharded ? logits.size(0) : 1},
          .first_tile = 0};
}

/// Of one shard, [R, its ids].
inline LogitsView shard_logits(const TensorView& logits, int64_t first_id, int64_t vocab_size) {
  return {.data = static_cast<const float*>(logits.data()),
          .row_stride = logits.row_stride(),
          .shard_stride = 0,
          .shards = {vocab_size, 1},
          .first_tile = first_id / kVocabTile};
}

/// HeadTiles' partials. stride: of all of them, words between rows.
struct PartialsView {
  float* max;
  float* sum_exp;
  float* adjusted_max;
  int32_t* argmax;
  float* sum_exp_t;
  int32_t* non_finite;
  int64_t max_stride, sum_exp_stride, adjusted_max_stride, argmax_stride, sum_exp_t_stride, non_finite_stride;
  int num_tiles;
};

inline PartialsView partials_view(const HeadTiles& tiles) {
  return {.max = static_cast<float*>(tiles.max.data()),
          .sum_exp = static_cast<float*>(tiles.sum_exp.data()),
          .adjusted_max = static_cast<float*>(tiles.adjusted_max.data()),
          .argmax = static_cast<int32_t*>(tiles.argmax.data()),
          .sum_exp_t = static_cast<float*>(tiles.sum_exp_t.data()),
          .non_finite = static_cast<int32_t*>(tiles.non_finite.data()),
          .max_stride = tiles.max.row_stride(),
          .sum_exp_stride = tiles.sum_exp.row_stride(),
          .adjusted_max_stride = tiles.adjusted_max.row_stride(),
          .argmax_stride = tiles.argmax.row_stride(),
          .sum_exp_t_stride = tiles.sum_exp_t.row_stride(),
          .non_finite_stride = tiles.non_finite.row_stride(),
          .num_tiles = static_cast<int>(tiles.max.cols())};
}

/// What changes one row's logits. Most rows: nothing.
struct RowAdjustment {
  const float* bias;      // of all ids, or null
  const int32_t* counts;  // of all ids, or null
  float presence, frequency, repetition;
  const int32_t* masked_ids;
  int num_masked;

  __device__ bool active() const { return bias != nullptr || counts != nullptr || num_masked > 0; }
  /// The adjusted logit of an id. Masked ids are few: stop tokens of a row that may not end yet, ends of bad words.
  __device__ float apply(float x, int64_t id) const {
    for (int i = 0; i < num_masked; ++i) {
      if (masked_ids[i] == id) return -INFINITY;
    }
    const float b = bias == nullptr ? 0.0f : bias[id];
    if (b == -INFINITY) return b;
    x += b;
    const int32_t word = counts == nullptr ? 0 : counts[id];
    if (word != 0) x = x > 0 ? x / repetition : x * repetition;
    if ((word & ~kInPrompt) != 0) {
      // Each step rounded on its own: no fused multiply-add.
      x = __fsub_rn(__fsub_rn(x, __fmul_rn(frequency, static_cast<float>(word & ~kInPrompt))), presence);
    }
    return fminf(fmaxf(x, -3.402823466e+38f), 3.402823466e+38f);
  }
};

/// The parameters of rows, by pointer: LogitsRows and SamplingTables.
struct RowParameters {
  const int32_t* tokens;
  const int32_t* slots;  // null: the rows are scored, nothing is chosen
  const int32_t* forced_ids;
  const int32_t* masked_offsets;
  const int32_t* masked_ids;
  const float* temperature;
  const float* top_p;
  const float* min_p;
  const int32_t* top_k;
  const int64_t* key;
  int32_t* last_token;
  const int32_t* adjust;  // null: no slot is adjusted
  const float* presence;
  const float* frequency;
  const float* repetition;
  int32_t* counts;
  const float* bias;
  int64_t counts_stride, bias_stride;

  __device__ RowAdjustment adjustment(int64_t row) const {
    RowAdjustment out{};
    if (slots == nullptr) return out;
    out.masked_ids = masked_ids + masked_offsets[row];
    out.num_masked = masked_offsets[row + 1] - masked_offsets[row];
    const int32_t slot = slots[row], flags = adjust == nullptr ? 0 : adjust[slot];
    if ((flags & kAdjustBias) != 0) out.bias = bias + slot * bias_stride;
    if ((flags & kAdjustCounts) != 0) {
      out.counts = counts + slot * counts_stride;
      out.presence = presence[slot];
      out.frequency = frequency[slot];
      out.repetition = repetition[slot];
    }
    return out;
  }
};

RowParameters row_parameters(const LogitsRows& rows, const SamplingTables& tables);

}  // namespace tokenmill::cuda
