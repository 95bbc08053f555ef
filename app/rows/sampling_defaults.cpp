#include "app/rows/sampling_defaults.h"

#include <fmt/format.h>

#include "io/json.h"
#include "kernels/core/error.h"

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

double number_between(const io::JsonValue& json, std::string_view name, double low, double high, std::string_view where) {
  const double value = json.is_number() ? json.as_double() : low - 1;
  if (!(value >= low && value <= high))
    throw Error(ErrorKind::kConfig, "{}: {} is {}; it must be a number between {} and {} (--generation-config none leaves "
                "the file out)", where, name, io::to_json(json), low, high);
  return value;
}

int64_t integer_from(const io::JsonValue& json, std::string_view name, int64_t low, std::string_view where) {
  if (!json.is_number() || !json.fits_int64() || json.as_int64() < low)
    throw Error(ErrorKind::kConfig, "{}: {} is {}; it must be a whole number of at least {} (--generation-config none "
                "leaves the file out)", where, name, io::to_json(json), low);
  return json.as_int64();
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

SamplingDefaults parse_generation_config(const io::JsonValue& json, std::string_view where) {
  if (!json.is_object()) throw Error(ErrorKind::kConfig, "{} holds {}; it must hold an object", where, json.kind_name());
  SamplingDefaults out;
  const auto value = [&](const char* name) -> const io::JsonValue* {
    const io::JsonValue* found = json.find(name);
    return found == nullptr || found->is_null() ? nullptr : found;
  };
  if (const auto* v = value("temperature")) out.temperature = number_between(*v, "temperature", 0, 2, where);
  if (const auto* v = value("top_p")) out.top_p = number_between(*v, "top_p", 1e-12, 1, where);
  if (const auto* v = value("min_p")) out.min_p = number_between(*v, "min_p", 0, 1, where);
  if (const auto* v = value("top_k")) out.top_k = integer_from(*v, "top_k", -1, where);
  if (const auto* v = value("max_new_tokens")) out.max_tokens = integer_from(*v, "max_new_tokens", 1, where);
  if (const auto* v = value("repetition_penalty"); v != nullptr && !(v->is_number() && v->as_double() == 1.0))
    throw Error(ErrorKind::kConfig,
                "{}: repetition_penalty is {}, which is not available in this version; run with --generation-config none "
                "(and --temperature, --top-p, --top-k as the file has them) to go on without it",
                where, io::to_json(*v));
  return out;
}

}  // namespace tokenmill::rows
