#include <algorithm>

#include "app/rows/field_table.h"

// Names that rows written for other programs carry, and what they may say.
namespace tokenmill::rows {
namespace {

using io::JsonValue;

bool is_number(const JsonValue& v, double wanted) { return v.is_number() && v.as_double() == wanted; }
bool is_bool(const JsonValue& v, bool wanted) { return v.is_bool() && v.as_bool() == wanted; }
bool zero(const JsonValue& v) { return is_number(v, 0); }
bool one(const JsonValue& v) { return is_number(v, 1); }
bool no(const JsonValue& v) { return is_bool(v, false); }
bool yes(const JsonValue& v) { return is_bool(v, true); }
bool never(const JsonValue&) { return false; }
bool anything(const JsonValue&) { return true; }
bool empty(const JsonValue& v) {
  return (v.is_array() && v.items().empty()) || (v.is_object() && v.members().empty()) ||
         (v.is_string() && v.as_string().empty());
}
bool text_format(const JsonValue& v) {
  const JsonValue* type = v.is_object() && v.members().size() == 1 ? v.find("type") : nullptr;
  return type != nullptr && type->is_string() && type->as_string() == "text";
}
bool text_only(const JsonValue& v) {
  return v.is_array() && v.items().size() == 1 && v.items()[0].is_string() && v.items()[0].as_string() == "text";
}
bool output_kind(const JsonValue& v) {
  if (v.is_number()) return zero(v) || one(v) || is_number(v, 2);
  return v.is_string() && (v.as_string() == "CUMULATIVE" || v.as_string() == "DELTA" || v.as_string() == "FINAL_ONLY");
}
bool positive(const JsonValue& v) { return v.is_number() && v.fits_int64() && v.as_int64() >= 1; }
bool has_64_bits(const JsonValue& v) {
  if (v.is_array()) return std::all_of(v.items().begin(), v.items().end(), has_64_bits);
  if (v.is_object())
    return std::all_of(v.members().begin(), v.members().end(), [](const auto& m) { return has_64_bits(m.second); });
  const bool whole = v.is_number() && v.number_text().find_first_not_of("-0123456789") == std::string_view::npos;
  return !whole || v.fits_int64() || v.fits_uint64();
}
bool arguments(const JsonValue& v) { return v.is_object() && has_64_bits(v); }
bool auto_or_none(const JsonValue& v) { return v.is_string() && (v.as_string() == "auto" || v.as_string() == "none"); }
bool auto_or_default(const JsonValue& v) {
  return v.is_string() && (v.as_string() == "auto" || v.as_string() == "default");
}

constexpr const char* kSeveralAnswers = "for several answers set n and a temperature";
constexpr const char* kForm = "ask for the form in the prompt, and check the text";
constexpr const char* kNativeOnly = "a native row takes it";

}  // namespace

const std::vector<NeutralField>& neutral_fields() {
  static const std::vector<NeutralField> table = {
      {"best_of", kAllShapes, one, "1", nullptr, kSeveralAnswers},
      {"length_penalty", kAllShapes, one, "1"},
      {"use_beam_search", kAllShapes, no, "false", nullptr, kSeveralAnswers},
      {"early_stopping", kAllShapes, no, "false"},
      {"max_new_tokens", kAllShapes, never, nullptr, "max_tokens"},
      {"min_new_tokens", kAllShapes, zero, "0", "min_tokens"},
      {"n_predict", kAllShapes, never, nullptr, "max_tokens"},
      {"sampling_seed", kAllShapes, never, nullptr, "seed"},
      {"random_seed", kAllShapes, never, nullptr, "seed"},
      {"repeat_penalty", kAllShapes, never, nullptr, "repetition_penalty"},
      {"stop_words", kAllShapes, never, nullptr, "stop"},
      {"beam_width", kAllShapes, one, "1", nullptr, kSeveralAnswers},
      {"top_logprobs", kN, zero, "0", "logprobs"},
      {"flat_logprobs", kBodies, no, "false", nullptr, kNativeOnly},
      {"prompt_logprob_token_ids", kBodies, never, nullptr, nullptr, kNativeOnly},
      {"prompt_logprob_start", kBodies, zero, "0", nullptr, kNativeOnly},
      // How an answer is handed out while it grows: here it is written when it is whole.
      {"output_kind", kAllShapes, output_kind, "\"CUMULATIVE\", \"DELTA\" or \"FINAL_ONLY\""},
      {"stream_interval", kAllShapes, positive, "whole numbers of at least 1"},
      {"skip_clone", kAllShapes, [](const JsonValue& v) { return v.is_bool(); }, "true and false"},
      {"structured_outputs", kAllShapes, never, nullptr, nullptr, kForm},
      {"guided_decoding", kAllShapes, never, nullptr, nullptr, kForm},
      {"guided_json", kAllShapes, never, nullptr, nullptr, kForm},
      {"guided_json_object", kAllShapes, no, "false", nullptr, kForm},
      {"guided_regex", kAllShapes, never, nullptr, nullptr, kForm},
      {"guided_choice", kAllShapes, never, nullptr, nullptr, kForm},
      {"guided_grammar", kAllShapes, never, nullptr, nullptr, kForm},
      {"guided_decoding_backend", kAllShapes, never, nullptr},
      {"guided_whitespace_pattern", kAllShapes, never, nullptr},
      {"response_format", kAllShapes, text_format, "{\"type\":\"text\"}", nullptr, kForm},
      // For samplers of one's own, of which there are none.
      {"extra_args", kAllShapes, arguments, "an object whose whole numbers have 64 bits"},
      {"vllm_xargs", kAllShapes, arguments, "an object whose whole numbers have 64 bits"},
      {"watermarking", kAllShapes, no, "false"},
      {"routed_experts_prompt_start", kAllShapes, zero, "0"},
      {"suffix", kN | kText, empty, "\"\""},
      {"chat_template", kText, never, nullptr},
      {"priority", kAllShapes, zero, "0"},
      {"kv_transfer_params", kAllShapes, never, nullptr},
      {"return_token_offsets", kAllShapes, no, "false"},
      {"stream", kAllShapes, no, "false"},
      {"stream_options", kAllShapes, never, nullptr},
      {"functions", kChat, empty, "[]"},
      {"function_call", kN | kChat, auto_or_none, "\"auto\" or \"none\""},
      {"parallel_tool_calls", kN | kChat, anything, nullptr},  // says how many calls, and tools themselves are refused
      {"tool_choice", kN | kChat, auto_or_none, "\"auto\" or \"none\""},
      {"include_reasoning", kN | kChat, yes, "true"},
      {"modalities", kChat, text_only, "[\"text\"]"},
      {"audio", kChat, never, nullptr},
      {"prediction", kChat, never, nullptr},
      {"web_search_options", kChat, never, nullptr},
      {"verbosity", kChat, never, nullptr},
      {"request_id", kBodies, never, nullptr},
      {"session_id", kBodies, never, nullptr},
      {"service_tier", kBodies, auto_or_default, "\"auto\" or \"default\""},
      // Bookkeeping of OpenAI's service: no bearing on the answer.
      {"model", kBodies, [](const JsonValue& v) { return v.is_string(); }, "a string"},
      {"user", kBodies, anything, nullptr},
      {"metadata", kBodies, anything, nullptr},
      {"store", kBodies, anything, nullptr},
      {"safety_identifier", kBodies, anything, nullptr},
      {"prompt_cache_key", kBodies, anything, nullptr},
  };
  return table;
}

}  // namespace tokenmill::rows
