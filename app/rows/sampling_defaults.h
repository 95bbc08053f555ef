#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampling.h"

namespace tokenmill::rows {

/// Sampling values of one layer (job, or the model's generation_config.json); empty: the layer below decides.
struct SamplingDefaults {
  std::optional<double> temperature, top_p, min_p;
  std::optional<int64_t> top_k;
  std::optional<int64_t> max_tokens;
  std::optional<std::vector<std::string>> stop;
  std::optional<std::vector<int32_t>> stop_token_ids;
  std::optional<bool> include_stop_str_in_output, ignore_eos, skip_special_tokens;
};

/// Values of `top` where it has them, else those of `below`.
SamplingDefaults merged(const SamplingDefaults& top, const SamplingDefaults& below);

/// Sets what the layer has.
void apply(const SamplingDefaults& defaults, SamplingParams& params);

}  // namespace tokenmill::rows
