#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/ops.h"

namespace tokenmill::cpu {

/// The normalizer of one row's raw logits from its tiles: sums in f64, tiles in ascending order.
struct RawSoftmax {
  float max = -std::numeric_limits<float>::infinity();
  double log_sum = 0;  ///< ln sum exp(l - max)
  bool finite = true;  ///< false: the row holds NaN or infinity, and the rest means nothing

  RawSoftmax(const HeadTiles& tiles, int64_t row) {
    const float* tile_max = tiles.max.row<float>(row);
    const float* sum_exp = tiles.sum_exp.row<float>(row);
    const int32_t* non_finite = tiles.non_finite.row<int32_t>(row);
    const int64_t num_tiles = tiles.max.cols();
    for (int64_t t = 0; t < num_tiles; ++t) {
      finite = finite && non_finite[t] == 0;
      max = tile_max[t] > max ? tile_max[t] : max;
    }
    if (!finite) return;
    double sum = 0;
    for (int64_t t = 0; t < num_tiles; ++t) {
      if (sum_exp[t] > 0) sum += sum_exp[t] * std::exp(double{tile_max[t]} - max);
    }
    log_sum = std::log(sum);
  }
  float logprob(float logit) const { return static_cast<float>(double{logit} - max - log_sum); }
};

}  // namespace tokenmill::cpu
