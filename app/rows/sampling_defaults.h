#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sampling.h"

namespace tokenmill::io {
class JsonValue;
}

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

/// The sampling values of a generation_config.json (temperature, top_p, top_k, min_p, max_new_tokens; null counts as
/// absent; do_sample is not looked at, as in vLLM). where names the file. Throws Error(kConfig) when a value cannot be
/// honoured (repetition_penalty other than 1, ...): silently dropping it would change every answer.
SamplingDefaults parse_generation_config(const io::JsonValue& json, std::string_view where);

}  // namespace tokenmill::rows
