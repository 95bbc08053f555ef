#pragma once

namespace tokenmill {

/// Seconds in which a device executed operations, by kind.
struct OpTimes {
  double gemm_s = 0;       ///< matrix products, the vocabulary's with its per-tile partials
  double attention_s = 0;  ///< attention over the KV pages
  double other_s = 0;      ///< everything else of the device: norms, rotation, activations, sampling, copies
  double host_s = 0;       ///< host functions in the stream: transfers between ranks, and waiting for them
  /// What the device computed.
  double compute_s() const { return gemm_s + attention_s + other_s; }
  OpTimes operator-(const OpTimes& earlier) const {
    return {gemm_s - earlier.gemm_s, attention_s - earlier.attention_s, other_s - earlier.other_s,
            host_s - earlier.host_s};
  }
};

}  // namespace tokenmill
