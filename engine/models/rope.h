#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace tokenmill {

/// Rotary embedding of one model, as its configuration states it.
struct RopeConfig {
  enum class Kind : uint8_t { kDefault, kLinear, kDynamic, kLlama3, kYarn };
  Kind kind = Kind::kDefault;
  double theta = 10000;
  int64_t rotary_dim = 0;  ///< even, <= head_dim
  double factor = 1;
  int64_t original_max_positions = 0;     ///< llama3, yarn, dynamic: the length before extension
  double low_freq_factor = 1;             ///< llama3
  double high_freq_factor = 4;            ///< llama3
  double beta_fast = 32, beta_slow = 1;   ///< yarn
  bool truncate = true;                   ///< yarn: round the correction range to whole dimensions
  std::optional<double> mscale, mscale_all_dim, attention_factor;  ///< yarn
  /// Divisors per frequency taken from the checkpoint (GGUF's rope_freqs); empty otherwise. [rotary_dim / 2]
  std::vector<float> frequency_divisors;
};

/// What Ops::rope_angles takes.
struct RopeFrequencies {
  std::vector<float> inv_freq;  ///< [rotary_dim / 2]
  float multiplier = 1;         ///< on cosines and sines
};

/// max_model_len fixes the factor of "dynamic" for the whole job: it must never depend on a sequence's current length.
/// Sources: Su et al., arXiv:2104.09864; position interpolation arXiv:2306.15595; YaRN arXiv:2309.00071 (its ramp and
/// attention temperature); the Llama 3.1 model card for llama3.
RopeFrequencies rope_frequencies(const RopeConfig& config, int64_t max_model_len);

}  // namespace tokenmill
