#include <fmt/format.h>

#include <algorithm>

#include "app/rows/field_table.h"
#include "app/rows/values.h"

namespace tokenmill::rows {
namespace {

using io::JsonValue;

SamplingParams& sampling(ParsedRow& row) { return row.settings.sampling; }

template <double SamplingParams::*member>
void set_number(ParsedRow& row, const JsonValue& value, std::string_view field) {
  sampling(row).*member = read_number(value, field);
}

template <int64_t SamplingParams::*member>
void set_integer(ParsedRow& row, const JsonValue& value, std::string_view field) {
  sampling(row).*member = read_integer(value, field);
}

template <bool SamplingParams::*member>
void set_boolean(ParsedRow& row, const JsonValue& value, std::string_view field) {
  sampling(row).*member = read_boolean(value, field);
}

template <std::optional<int64_t> SamplingParams::*member>
void set_logprobs(ParsedRow& row, const JsonValue& value, std::string_view field) {
  sampling(row).*member = read_logprobs(value, field);
}

std::vector<int32_t> some_ids(const JsonValue& value, std::string_view field) {
  std::vector<int32_t> ids = read_token_ids(value, field);
  if (ids.empty()) refuse(field, value, "a list of at least one token id, or left out");
  return ids;
}

void set_stop_token_ids(ParsedRow& row, const JsonValue& value, std::string_view field) {
  std::vector<int32_t> ids;
  for (const int32_t id : read_token_ids(value, field))
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  sampling(row).stop_token_ids = std::move(ids);
}

void set_allowed_token_ids(ParsedRow& row, const JsonValue& value, std::string_view field) {
  std::vector<int32_t> ids = some_ids(value, field);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  sampling(row).allowed_token_ids = std::move(ids);
}

void set_max_completion_tokens(ParsedRow& row, const JsonValue& value, std::string_view field) {
  if (read_integer(value, field) < 1) refuse(field, value, "at least 1");
  sampling(row).max_tokens = read_integer(value, field);
}

void set_bad_words(ParsedRow& row, const JsonValue& value, std::string_view field) {
  std::vector<std::string> words = read_strings(value, field);
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i].empty())
      throw BadRow{"invalid_request", std::string(field),
                   fmt::format("{}[{}] is an empty string; give a word", field, i)};
  row.settings.bad_words = std::move(words);
}

void set_thinking_token_budget(ParsedRow& row, const JsonValue& value, std::string_view field) {
  const bool whole = value.is_number() && value.number_text().find_first_of(".eE") == std::string::npos;
  const int64_t budget = whole ? read_integer(value, field) : -2;
  if (budget < -1) refuse(field, value, "a whole number of at least 0, or -1 for no limit");
  row.settings.thinking_token_budget = budget == -1 ? std::nullopt : std::optional<int64_t>(budget);
}

void set_prompt_logprob_start(ParsedRow& row, const JsonValue& value, std::string_view field) {
  PromptLogprobIds& lists = sampling(row).prompt_logprob_ids;
  lists.start = read_integer(value, field);
  if (lists.width == 0)
    throw BadRow{"invalid_request", std::string(field),
                 fmt::format("{} is {}; it needs prompt_logprob_token_ids", field, shown(value))};
}

/// OpenAI's chat: a switch here, the number in top_logprobs, which stands behind it in the table.
void set_chat_logprobs(ParsedRow& row, const JsonValue& value, std::string_view field) {
  std::optional<int64_t>& count = sampling(row).logprobs;
  count = read_boolean(value, field) ? std::optional<int64_t>(count.value_or(0)) : std::nullopt;
}

void set_top_logprobs(ParsedRow& row, const JsonValue& value, std::string_view field) {
  const int64_t count = read_integer(value, field);
  if (!value.fits_int64()) refuse(field, value, "between 0 and what --max-logprobs allows");
  if (!sampling(row).logprobs && count == 0) return;
  if (!sampling(row).logprobs)
    throw BadRow{"invalid_request", std::string(field),
                 fmt::format("{} is {}; it needs logprobs to be true", field, shown(value))};
  sampling(row).logprobs = count;
}

}  // namespace

const std::vector<Field>& sampling_fields() {
  using P = SamplingParams;
  static const std::vector<Field> table = {
      {"n", kAllShapes, set_integer<&P::n>},
      {"temperature", kAllShapes, set_number<&P::temperature>},
      {"top_p", kAllShapes, set_number<&P::top_p>},
      {"top_k", kAllShapes, set_integer<&P::top_k>},
      {"min_p", kAllShapes, set_number<&P::min_p>},
      {"presence_penalty", kAllShapes, set_number<&P::presence_penalty>},
      {"frequency_penalty", kAllShapes, set_number<&P::frequency_penalty>},
      {"repetition_penalty", kAllShapes, set_number<&P::repetition_penalty>},
      {"seed", kAllShapes, [](ParsedRow& r, const JsonValue& v, auto f) { sampling(r).seed = read_seed(v, f); }},
      {"max_tokens", kAllShapes,
       [](ParsedRow& r, const JsonValue& v, auto f) { sampling(r).max_tokens = read_integer(v, f); }},
      // OpenAI's new name: wins over max_tokens, which stands before it here.
      {"max_completion_tokens", kN | kChat, set_max_completion_tokens},
      {"min_tokens", kAllShapes, set_integer<&P::min_tokens>},
      {"stop", kAllShapes, [](ParsedRow& r, const JsonValue& v, auto f) { sampling(r).stop = read_strings(v, f); }},
      {"stop_token_ids", kAllShapes, set_stop_token_ids},
      {"include_stop_str_in_output", kAllShapes, set_boolean<&P::include_stop_str_in_output>},
      {"ignore_eos", kAllShapes, set_boolean<&P::ignore_eos>},
      {"repetition_detection", kAllShapes,
       [](ParsedRow& r, const JsonValue& v, auto f) {
         sampling(r).repetition_detection = read_repetition_detection(v, f);
       }},
      {"thinking_token_budget", kAllShapes, set_thinking_token_budget},
      {"logit_bias", kAllShapes,
       [](ParsedRow& r, const JsonValue& v, auto f) { sampling(r).logit_bias = read_logit_bias(v, f); }},
      {"allowed_token_ids", kAllShapes, set_allowed_token_ids},
      {"bad_words", kAllShapes, set_bad_words},
      {"trace_decode_token_ids", kAllShapes,
       [](ParsedRow& r, const JsonValue& v, auto f) { sampling(r).trace_decode_token_ids = some_ids(v, f); }},
      {"logprobs", kN | kText, set_logprobs<&P::logprobs>},
      {"logprobs", kChat, set_chat_logprobs},
      {"top_logprobs", kChat, set_top_logprobs},
      {"logprob_token_ids", kAllShapes,
       [](ParsedRow& r, const JsonValue& v, auto f) { sampling(r).logprob_token_ids = read_token_ids(v, f); }},
      {"prompt_logprobs", kAllShapes, set_logprobs<&P::prompt_logprobs>},
      {"prompt_logprob_token_ids", kN,
       [](ParsedRow& r, const JsonValue& v, auto f) {
         sampling(r).prompt_logprob_ids = read_prompt_logprob_ids(v, f);
       }},
      {"prompt_logprob_start", kN, set_prompt_logprob_start},
      {"skip_special_tokens", kAllShapes, set_boolean<&P::skip_special_tokens>},
      {"spaces_between_special_tokens", kAllShapes, set_boolean<&P::spaces_between_special_tokens>},
      {"detokenize", kAllShapes, set_boolean<&P::detokenize>},
      {"skip_reading_prefix_cache", kAllShapes, set_boolean<&P::skip_reading_prefix_cache>},
      {"cache_salt", kAllShapes,
       [](ParsedRow& r, const JsonValue& v, auto f) { r.settings.cache_salt = read_string(v, f); }},
  };
  return table;
}

}  // namespace tokenmill::rows
