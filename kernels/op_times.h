#pragma once

namespace tokenmill {

/// Seconds in which a device executed operations, by kind.
struct OpTimes {
  double gemm_s = 0;       ///< matrix products, the vocabulary's with its per-tile partials
  double attention_s = 0;  ///< attention over the KV pages
  double other_s = 0;      ///< everything else that runs on the stream: norms, rotation, activations, sampling, copies
  OpTimes operator-(const OpTimes& earlier) const {
    return {gemm_s - earlier.gemm_s, attention_s - earlier.attention_s, other_s - earlier.other_s};
  }
};

}  // namespace tokenmill
