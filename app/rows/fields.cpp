#include "app/rows/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

// The fields of a row, one line each: what this version honours, and the neutral value of what it does not.
namespace tokenmill::rows {
namespace {

using io::JsonValue;
enum Shapes : unsigned { kN = 1, kChat = 2, kText = 4, kBodies = kChat | kText, kAllShapes = kN | kBodies };

unsigned bit(RowShape shape) {
  return shape == RowShape::kNative ? kN : shape == RowShape::kChatCompletion ? kChat : kText;
}

[[noreturn]] void refuse(std::string_view field, const JsonValue& value, std::string_view must) {
  throw BadRow{"invalid_request", std::string(field),
               fmt::format("{} is {}; it must be {}", field, shown(value), must)};
}

double number(const JsonValue& value, std::string_view field) {
  if (!value.is_number()) refuse(field, value, "a number");
  return value.as_double();
}

int64_t integer(const JsonValue& value, std::string_view field) {
  if (value.is_number() && value.fits_int64()) return value.as_int64();
  if (value.is_number() && value.number_text().find_first_not_of("-0123456789") == std::string_view::npos) {
    using Limits = std::numeric_limits<int64_t>;
    const bool low = value.number_text().starts_with('-');
    throw BadRow{"invalid_request", std::string(field),
                 fmt::format("{} is {}; it is out of range, at {} {}", field, shown(value), low ? "least" : "most",
                             low ? Limits::min() : Limits::max())};
  }
  refuse(field, value, "a whole number");
}

bool boolean(const JsonValue& value, std::string_view field) {
  if (!value.is_bool()) refuse(field, value, "true or false");
  return value.as_bool();
}

std::vector<std::string> strings(const JsonValue& value, std::string_view field) {
  if (value.is_string()) return {value.as_string()};
  std::vector<std::string> out;
  if (!value.is_array()) refuse(field, value, "a string or a list of strings");
  for (const JsonValue& item : value.items()) {
    if (!item.is_string()) refuse(field, value, "a string or a list of strings");
    out.push_back(item.as_string());
  }
  return out;
}

std::optional<uint64_t> seed(const JsonValue& value, std::string_view field) {
  if (value.is_number() && value.fits_uint64()) return value.as_uint64();
  if (value.is_number() && value.number_text() == "-1") return std::nullopt;  // vLLM: no seed
  refuse(field, value, "-1 (none) or a whole number between 0 and 18446744073709551615");
}

text::ChatRequest& chat(ParsedRow& row, std::string_view field) {
  if (auto* prompt = std::get_if<text::ChatRequest>(&row.prompt)) return *prompt;
  throw BadRow{"invalid_request", std::string(field),
               fmt::format("{} belongs to messages; this row has {}", field, row.prompt_field)};
}

const JsonValue& object(const JsonValue& value, std::string_view field) {
  if (!value.is_object()) refuse(field, value, "an object");
  return value;
}

const JsonValue& list(const JsonValue& value, std::string_view field) {
  if (!value.is_array()) refuse(field, value, "a list");
  return value;
}

struct Field {
  const char* name;
  unsigned shapes;
  void (*read)(ParsedRow&, const JsonValue&, std::string_view field);
};

/// What the sampler and the prompt take now.
const std::vector<Field> kHonoured = {
    {"temperature", kAllShapes,
     [](ParsedRow& r, const JsonValue& v, auto f) { r.sampling.temperature = number(v, f); }},
    {"top_p", kAllShapes, [](ParsedRow& r, const JsonValue& v, auto f) { r.sampling.top_p = number(v, f); }},
    {"top_k", kAllShapes, [](ParsedRow& r, const JsonValue& v, auto f) { r.sampling.top_k = integer(v, f); }},
    {"min_p", kAllShapes, [](ParsedRow& r, const JsonValue& v, auto f) { r.sampling.min_p = number(v, f); }},
    {"seed", kAllShapes, [](ParsedRow& r, const JsonValue& v, auto f) { r.sampling.seed = seed(v, f); }},
    {"max_tokens", kAllShapes,
     [](ParsedRow& r, const JsonValue& v, auto f) {
       r.sampling.max_tokens = integer(v, f);
       r.has_max_tokens = true;
     }},
    {"max_completion_tokens", kN | kChat,  // OpenAI's new name: wins over max_tokens, which stands before it here
     [](ParsedRow& r, const JsonValue& v, auto f) {
       if (integer(v, f) < 1) refuse(f, v, "at least 1");
       r.sampling.max_tokens = integer(v, f);
       r.has_max_tokens = true;
     }},
    {"stop", kAllShapes, [](ParsedRow& r, const JsonValue& v, auto f) { r.sampling.stop = strings(v, f); }},
    {"stop_token_ids", kAllShapes,
     [](ParsedRow& r, const JsonValue& v, auto f) { r.sampling.stop_token_ids = read_token_ids(v, f); }},
    {"include_stop_str_in_output", kAllShapes,
     [](ParsedRow& r, const JsonValue& v, auto f) { r.sampling.include_stop_str_in_output = boolean(v, f); }},
    {"ignore_eos", kAllShapes, [](ParsedRow& r, const JsonValue& v, auto f) { r.sampling.ignore_eos = boolean(v, f); }},
    {"skip_special_tokens", kAllShapes,
     [](ParsedRow& r, const JsonValue& v, auto f) { r.sampling.skip_special_tokens = boolean(v, f); }},
    {"return_token_ids", kAllShapes,
     [](ParsedRow& r, const JsonValue& v, auto f) { r.return_token_ids = boolean(v, f); }},
    {"add_special_tokens", kAllShapes,
     [](ParsedRow& r, const JsonValue& v, auto f) { r.add_special_tokens = boolean(v, f); }},
    {"add_generation_prompt", kN | kChat,
     [](ParsedRow& r, const JsonValue& v, auto f) { chat(r, f).add_generation_prompt = boolean(v, f); }},
    {"continue_final_message", kN | kChat,
     [](ParsedRow& r, const JsonValue& v, auto f) { chat(r, f).continue_final_message = boolean(v, f); }},
    {"chat_template_kwargs", kN | kChat,
     [](ParsedRow& r, const JsonValue& v, auto f) { chat(r, f).chat_template_kwargs = object(v, f); }},
    {"tools", kN | kChat, [](ParsedRow& r, const JsonValue& v, auto f) { chat(r, f).tools = list(v, f); }},
    {"documents", kN | kChat, [](ParsedRow& r, const JsonValue& v, auto f) { chat(r, f).documents = list(v, f); }},
};

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
bool auto_or_none(const JsonValue& v) { return v.is_string() && (v.as_string() == "auto" || v.as_string() == "none"); }
bool auto_or_default(const JsonValue& v) {
  return v.is_string() && (v.as_string() == "auto" || v.as_string() == "default");
}

struct NeutralField {
  const char* name;
  unsigned shapes;
  bool (*neutral)(const JsonValue&);  ///< null is always neutral
  const char* neutral_text;           ///< "only X" in messages; nullptr: only null
  const char* instead = nullptr;      ///< the field of this version that means the same
};

/// Fields whose meaning is known and not built: the neutral value changes nothing, any other is an error for the row.
const std::vector<NeutralField> kNeutral = {
    {"n", kAllShapes, one, "1"},
    {"best_of", kAllShapes, one, "1"},
    {"presence_penalty", kAllShapes, zero, "0"},
    {"frequency_penalty", kAllShapes, zero, "0"},
    {"repetition_penalty", kAllShapes, one, "1"},
    {"length_penalty", kAllShapes, one, "1"},
    {"use_beam_search", kAllShapes, no, "false"},
    {"early_stopping", kAllShapes, no, "false"},
    {"bad_words", kAllShapes, empty, "[]"},
    {"min_tokens", kAllShapes, zero, "0"},
    {"max_new_tokens", kAllShapes, never, nullptr, "max_tokens"},
    {"min_new_tokens", kAllShapes, zero, "0"},
    {"sampling_seed", kAllShapes, never, nullptr, "seed"},
    {"beam_width", kAllShapes, one, "1"},
    {"logprobs", kAllShapes, no, "false"},
    {"top_logprobs", kN | kChat, zero, "0"},
    {"prompt_logprobs", kAllShapes, never, nullptr},
    {"logprob_token_ids", kAllShapes, never, nullptr},
    {"prompt_logprob_token_ids", kAllShapes, never, nullptr},
    {"prompt_logprob_start", kAllShapes, zero, "0"},
    {"flat_logprobs", kAllShapes, no, "false"},
    {"detokenize", kAllShapes, yes, "true"},
    {"spaces_between_special_tokens", kAllShapes, yes, "true"},
    {"output_kind", kAllShapes, never, nullptr},
    {"stream_interval", kAllShapes, never, nullptr},
    {"logit_bias", kAllShapes, empty, "{}"},
    {"allowed_token_ids", kAllShapes, never, nullptr},
    {"structured_outputs", kAllShapes, never, nullptr},
    {"guided_decoding", kAllShapes, never, nullptr},
    {"guided_json", kAllShapes, never, nullptr},
    {"guided_json_object", kAllShapes, no, "false"},
    {"guided_regex", kAllShapes, never, nullptr},
    {"guided_choice", kAllShapes, never, nullptr},
    {"guided_grammar", kAllShapes, never, nullptr},
    {"guided_decoding_backend", kAllShapes, never, nullptr},
    {"guided_whitespace_pattern", kAllShapes, never, nullptr},
    {"response_format", kAllShapes, text_format, "{\"type\":\"text\"}"},
    {"extra_args", kAllShapes, never, nullptr},
    {"vllm_xargs", kAllShapes, never, nullptr},
    {"thinking_token_budget", kAllShapes, [](const JsonValue& v) { return is_number(v, -1); }, "-1"},
    {"repetition_detection", kAllShapes, never, nullptr},
    {"skip_reading_prefix_cache", kAllShapes, anything, nullptr},  // no cache to read: true of every row
    {"cache_salt", kAllShapes, anything, nullptr},                 // the same: nothing is shared between rows
    {"watermarking", kAllShapes, no, "false"},
    {"routed_experts_prompt_start", kAllShapes, zero, "0"},
    {"trace_decode_token_ids", kAllShapes, never, nullptr},
    {"truncate_prompt_tokens", kAllShapes, never, nullptr},
    {"truncation_side", kAllShapes, never, nullptr},
    {"echo", kAllShapes, no, "false"},
    {"suffix", kN | kText, empty, "\"\""},
    {"chat_template", kAllShapes, never, nullptr},
    {"priority", kAllShapes, zero, "0"},
    {"kv_transfer_params", kAllShapes, never, nullptr},
    {"return_tokens_as_token_ids", kAllShapes, no, "false"},
    {"return_token_offsets", kAllShapes, no, "false"},
    {"return_prompt_text", kAllShapes, no, "false"},
    {"stream", kAllShapes, no, "false"},
    {"stream_options", kAllShapes, never, nullptr},
    {"functions", kChat, empty, "[]"},
    {"function_call", kN | kChat, auto_or_none, "\"auto\" or \"none\""},
    {"parallel_tool_calls", kN | kChat, anything, nullptr},  // says how many calls, and tools themselves are refused
    {"tool_choice", kN | kChat, auto_or_none, "\"auto\" or \"none\""},
    {"reasoning_effort", kN | kChat, never, nullptr},
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

void check_neutral(const NeutralField& field, const JsonValue& value) {
  if (field.neutral(value)) return;
  if (field.instead != nullptr)
    throw BadRow{"invalid_request", field.name,
                 fmt::format("{} is {}; this version's name for it is {}", field.name, shown(value), field.instead)};
  throw BadRow{"invalid_request", field.name,
               fmt::format("{} is {}; this version supports {}", field.name, shown(value),
                           field.neutral_text == nullptr ? "no value here: leave it out"
                                                         : fmt::format("only {}", field.neutral_text))};
}

}  // namespace

std::string shown(const JsonValue& value) {
  std::string text = io::to_json(value);
  if (text.size() <= 60) return text;
  size_t cut = 57;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return text.substr(0, cut) + "...";
}

std::vector<int32_t> read_token_ids(const JsonValue& value, std::string_view field) {
  if (!value.is_array()) refuse(field, value, "a list of token ids");
  std::vector<int32_t> ids;
  ids.reserve(value.items().size());
  for (const JsonValue& item : value.items()) {
    if (!item.is_number() || !item.fits_int64() || item.as_int64() < 0 ||
        item.as_int64() > std::numeric_limits<int32_t>::max())
      throw BadRow{"invalid_request", std::string(field),
                   fmt::format("{}[{}] is {}; it must be a token id", field, ids.size(), shown(item))};
    ids.push_back(static_cast<int32_t>(item.as_int64()));
  }
  return ids;
}

std::vector<std::string_view> read_fields(const JsonValue& object, RowShape shape,
                                          const std::vector<std::string_view>& skip, ParsedRow& row) {
  const unsigned wanted = bit(shape);
  const auto skipped = [&](std::string_view name) { return std::find(skip.begin(), skip.end(), name) != skip.end(); };
  for (const Field& field : kHonoured)  // in the table's order: what a record says does not depend on its own order
    if (const JsonValue* value = object.find(field.name);
        (field.shapes & wanted) && value != nullptr && !value->is_null() && !skipped(field.name))
      field.read(row, *value, field.name);
  std::vector<std::string_view> unknown;
  for (const auto& [name, value] : object.members()) {
    const auto same = [&, n = std::string_view(name)](const auto& f) { return (f.shapes & wanted) && n == f.name; };
    if (skipped(name) || std::any_of(kHonoured.begin(), kHonoured.end(), same)) continue;
    const auto neutral = std::find_if(kNeutral.begin(), kNeutral.end(), same);
    if (neutral == kNeutral.end())
      unknown.push_back(name);
    else if (!value.is_null())
      check_neutral(*neutral, value);
  }
  return unknown;
}

std::vector<std::string> field_names(RowShape shape) {
  std::vector<std::string> names;
  for (const Field& field : kHonoured)
    if (field.shapes & bit(shape)) names.emplace_back(field.name);
  for (const NeutralField& field : kNeutral)
    if (field.shapes & bit(shape)) names.emplace_back(field.name);
  return names;
}

}  // namespace tokenmill::rows
