#pragma once
#include <cstdint>

#include "kernels/cpu/isa.h"
#include "kernels/ops.h"

namespace tokenmill::cpu {

/// Partials of one row's vocabulary tile; see HeadTiles in kernels/ops.h.
struct TilePartials {
  float max;
  int32_t argmax;  ///< relative to the tile
  float sum_exp, sum_exp_t;
  int32_t non_finite;
};

struct SamplingKernels {
  /// count >= 1 logits of one tile.
  TilePartials (*tile_partials)(const float* logits, int64_t count, float temperature);
  /// scaled[i] = (logits[i] - max) / temperature, weight[i] = exp(scaled[i]). scaled may be null.
  void (*weights)(const float* logits, int64_t count, float max, float temperature, float* scaled, float* weight);
};

const SamplingKernels& sampling_kernels(Isa isa);

/// Scratch of a thread in pick(): weights, scaled logits, candidates, then a double per tile.
constexpr int64_t pick_scratch_floats(int64_t vocab_size) {
  return 3 * vocab_size + 2 * ((vocab_size + kVocabTile - 1) / kVocabTile) + 2;
}

}  // namespace tokenmill::cpu
