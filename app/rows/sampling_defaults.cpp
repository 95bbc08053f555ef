#include "app/rows/sampling_defaults.h"

namespace tokenmill::rows {
namespace {

template <typename T>
void fill(std::optional<T>& value, const std::optional<T>& below) {
  if (!value) value = below;
}

template <typename T, typename To>
void set(const std::optional<T>& value, To& target) {
  if (value) target = *value;
}

}  // namespace

SamplingDefaults merged(const SamplingDefaults& top, const SamplingDefaults& below) {
  SamplingDefaults out = top;
  fill(out.temperature, below.temperature);
  fill(out.top_p, below.top_p);
  fill(out.min_p, below.min_p);
  fill(out.top_k, below.top_k);
  fill(out.max_tokens, below.max_tokens);
  fill(out.stop, below.stop);
  fill(out.stop_token_ids, below.stop_token_ids);
  fill(out.include_stop_str_in_output, below.include_stop_str_in_output);
  fill(out.ignore_eos, below.ignore_eos);
  fill(out.skip_special_tokens, below.skip_special_tokens);
  return out;
}

void apply(const SamplingDefaults& defaults, SamplingParams& params) {
  set(defaults.temperature, params.temperature);
  set(defaults.top_p, params.top_p);
  set(defaults.min_p, params.min_p);
  set(defaults.top_k, params.top_k);
  if (defaults.max_tokens) params.max_tokens = defaults.max_tokens;
  set(defaults.stop, params.stop);
  set(defaults.stop_token_ids, params.stop_token_ids);
  set(defaults.include_stop_str_in_output, params.include_stop_str_in_output);
  set(defaults.ignore_eos, params.ignore_eos);
  set(defaults.skip_special_tokens, params.skip_special_tokens);
}

}  // namespace tokenmill::rows
