#pragma once
#include <cstdint>

#include "kernels/cpu/isa.h"
#include "kernels/ops.h"

namespace tokenmill::cpu {

/// Partials of one row's vocabulary tile; see HeadTiles in kernels/ops.h.
struct TilePartials {
  float max;
  float sum_exp;
  float adjusted_max;
  int32_t argmax;  ///< relative to the tile
  float sum_exp_t;
  int32_t non_finite;
};

/// The penalties of one row; see Ops::pick.
struct Penalties {
  float presence = 0, frequency = 0, repetition = 1;
};

struct SamplingKernels {
  /// count >= 1 logits of one tile; adjusted: what is chosen from, null when these are the logits themselves.
  TilePartials (*tile_partials)(const float* logits, const float* adjusted, int64_t count, float temperature);
  /// out[i] = logits[i] with its bias and penalties; bias and counts may be null.
  void (*adjust)(const float* logits, const float* bias, const int32_t* counts, int64_t count,
                 const Penalties& penalties, float* out);
  /// scaled[i] = (logits[i] - max) / temperature, weight[i] = exp(scaled[i]). scaled may be null, or logits.
  void (*weights)(const float* logits, int64_t count, float max, float temperature, float* scaled, float* weight);
};

const SamplingKernels& sampling_kernels(Isa isa);

/// Scratch of a thread in pick(): two tiles, then ids, scaled logits, weights and indices of candidates, an index per
/// tile.
constexpr int64_t pick_scratch_floats(int64_t vocab_size) {
  return 2 * kVocabTile + 4 * vocab_size + (vocab_size + kVocabTile - 1) / kVocabTile;
}

}  // namespace tokenmill::cpu
