#include <algorithm>
#include <limits>

#include "app/option_table.h"
#include "app/rows/fields.h"
#include "app/rows/values.h"
#include "kernels/core/error.h"

// The options that are fields of rows, for rows that do not say. A value is kept as a row would write it and held
// against the same rules, so that flag, job file and row accept the same things.
namespace tokenmill::app {
namespace {

using io::JsonValue;
using S = OptionShape;
constexpr const char* kGroup = "Sampling, for rows that do not say";

/// "top-k" as rows write it.
std::string field_name(std::string_view option) {
  std::string name(option);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

[[noreturn]] void refuse(const Setting& setting, const std::string& field, const std::string& message) {
  const bool names_field = message.starts_with(field);  // the place stands for the name
  throw Error(ErrorKind::kConfig, "{}{}", setting.where, names_field ? message.substr(field.size()) : ": " + message);
}

/// Stores a field's value after the checks that need no model.
void keep(RunOptions& options, const Setting& setting, JsonValue value) {
  const std::string field = field_name(setting.name);
  rows::RowSettings scratch;
  scratch.sampling.hidden_states = HiddenStates::kLast;  // for max_tokens 0: what it needs is looked at with all options
  try {
    rows::read_settings(JsonValue::object({{field, value}}), scratch);
  } catch (const rows::BadRow& bad) {
    refuse(setting, field, bad.message);  // bad.field may be a member of it
  }
  // What needs another field beside it is judged when all of the job's are known (row_defaults).
  if (scratch.sampling.max_tokens == 0) scratch.sampling.prompt_logprobs = 0;
  constexpr int64_t kAnyVocabulary = int64_t{1} << 31, kAnyCount = -1;
  if (const std::optional<FieldError> wrong = check(scratch.sampling, kAnyVocabulary, kAnyCount))
    refuse(setting, wrong->field, rows::as_written(wrong->message, JsonValue::object({{field, value}})));
  std::vector<JsonValue::Member>& members = options.sampling.members();
  std::erase_if(members, [&](const JsonValue::Member& member) { return member.first == field; });
  members.emplace_back(field, std::move(value));
}

/// What no double holds (1e309) is left to the bounds of its field.
void keep_number(RunOptions& o, const Setting& s) {
  JsonValue value;
  try {
    value = JsonValue::number(read_number(s));
  } catch (const Error&) {
    try {
      value = io::parse_json(s.values.at(0), s.where);
    } catch (const Error&) {  // no number at all: the first reason stands
    }
    if (!value.is_number()) throw;
  }
  keep(o, s, std::move(value));
}

template <int64_t low, int64_t high = std::numeric_limits<int64_t>::max()>
void keep_integer(RunOptions& o, const Setting& s) {
  keep(o, s, JsonValue::number(read_integer(s, low, high)));
}

void keep_boolean(RunOptions& o, const Setting& s) { keep(o, s, JsonValue::boolean(read_bool(s))); }

void keep_text(RunOptions& o, const Setting& s) { keep(o, s, JsonValue::string(read_text(s))); }

void keep_texts(RunOptions& o, const Setting& s) {
  std::vector<JsonValue> items;
  for (const std::string& value : s.values) items.push_back(JsonValue::string(value));
  keep(o, s, JsonValue::array(std::move(items)));
}

void keep_ids(RunOptions& o, const Setting& s) {
  std::vector<JsonValue> items;
  for (const std::string& value : s.values)
    items.push_back(
        JsonValue::number(read_integer({s.name, {value}, s.where}, 0, std::numeric_limits<int32_t>::max())));
  keep(o, s, JsonValue::array(std::move(items)));
}

/// KEY=NUMBER items as an object.
void keep_map(RunOptions& o, const Setting& s) {
  std::vector<JsonValue::Member> members;
  for (const std::string& value : s.values) {
    const size_t equals = value.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error(ErrorKind::kConfig, "{} holds {}; its items are NAME=NUMBER", s.where, value);
    const std::string key = value.substr(0, equals), number = value.substr(equals + 1);
    const Setting item{s.name, {number}, s.where + " " + key};
    members.emplace_back(key, JsonValue::number(read_number(item)));
  }
  check_named_once(s, members);
  keep(o, s, JsonValue::object(std::move(members)));
}

}  // namespace

const std::vector<OptionSpec>& sampling_options() {
  static const std::vector<OptionSpec> table = {
      {"n", kGroup, S::kValue, "SAMPLES", "answers of each row; above 1 needs a temperature", "1", kRun,
       keep_integer<1, kMaxSamples>},
      {"temperature", kGroup, S::kValue, "T", "0 to 2; 0 is greedy", "1", kRun, keep_number},
      {"top-p", kGroup, S::kValue, "P", "above 0, at most 1", "1", kRun, keep_number},
      {"top-k", kGroup, S::kValue, "K", "0 or -1: off", "0", kRun, keep_integer<-1>},
      {"min-p", kGroup, S::kValue, "P", "0 to 1", "0", kRun, keep_number},
      {"presence-penalty", kGroup, S::kValue, "X", "-2 to 2; of tokens generated already", "0", kRun, keep_number},
      {"frequency-penalty", kGroup, S::kValue, "X", "-2 to 2; the same, per occurrence", "0", kRun, keep_number},
      {"repetition-penalty", kGroup, S::kValue, "X", "above 0; of tokens in prompt and answer", "1", kRun, keep_number},
      {"max-tokens", kGroup, S::kValue, "TOKENS", "longest answer; 0: only the prompt's scores or hidden states",
       "what fits for chat, 16 for plain prompts", kRun, keep_integer<0>},
      {"min-tokens", kGroup, S::kValue, "TOKENS", "no end before this many", "0", kRun, keep_integer<0>},
      {"stop", kGroup, S::kList, "TEXT...", "texts that end an answer", "none", kRun, keep_texts},
      {"stop-token-ids", kGroup, S::kList, "ID...", "tokens that end an answer", "none", kRun, keep_ids},
      {"include-stop-str-in-output", kGroup, S::kSwitch, "BOOL", "keep the stop text in the answer", "false", kRun,
       keep_boolean},
      {"ignore-eos", kGroup, S::kSwitch, "BOOL", "go on after end-of-sequence tokens", "false", kRun, keep_boolean},
      {"repetition-detection", kGroup, S::kMap, "NAME=N...",
       "end answers that repeat: max_pattern_size, min_pattern_size, min_count", "off", kRun, keep_map},
      {"thinking-token-budget", kGroup, S::kValue, "TOKENS", "end thinking after this many; -1: no limit", "-1", kRun,
       keep_integer<-1>},
      {"logit-bias", kGroup, S::kMap, "ID=BIAS...", "added to tokens' logits, -100 to 100", "none", kRun, keep_map},
      {"allowed-token-ids", kGroup, S::kList, "ID...", "only these tokens are generated", "all", kRun, keep_ids},
      {"bad-words", kGroup, S::kList, "TEXT...", "words that are never generated", "none", kRun, keep_texts},
      {"logprobs", kGroup, S::kValue, "N", "most likely tokens to report per token; -1: all", "none", kRun,
       keep_integer<-1>},
      {"prompt-logprobs", kGroup, S::kValue, "N", "the same for the prompt's tokens", "none", kRun, keep_integer<-1>},
      {"logprob-token-ids", kGroup, S::kList, "ID...", "tokens to report instead of the most likely", "none", kRun,
       keep_ids},
      {"flat-logprobs", kGroup, S::kSwitch, "BOOL", "lists per property instead of objects per token", "false", kRun,
       keep_boolean},
      {"skip-special-tokens", kGroup, S::kSwitch, "BOOL", "leave special tokens out of the answer's text", "true", kRun,
       keep_boolean},
      {"detokenize", kGroup, S::kSwitch, "BOOL", "false: token ids only, no text", "true", kRun, keep_boolean},
      {"return-token-ids", kGroup, S::kSwitch, "BOOL", "put the answer's token ids into the result", "false", kRun,
       keep_boolean},
      {"return-prompt-text", kGroup, S::kSwitch, "BOOL", "put the prompt as the model saw it into the result", "false",
       kRun, keep_boolean},
      {"truncate-prompt-tokens", kGroup, S::kValue, "TOKENS",
       "cut longer prompts; -1: to what the model's length leaves", "never", kRun, keep_integer<-1>},
      {"truncation-side", kGroup, S::kValue, "left|right", "the end that is dropped", "left", kRun, keep_text},
  };
  return table;
}

}  // namespace tokenmill::app
