#include "app/rows/score_columns.h"

#include <charconv>
#include <limits>
#include <string_view>

namespace tokenmill::rows {
namespace {

using io::JsonValue;
constexpr std::string_view kTokenId = "token_id:";  // how results show tokens with return_tokens_as_token_ids

/// Read as what it was printed from.
float as_float(const JsonValue* number) {
  float value = std::numeric_limits<float>::quiet_NaN();
  if (number == nullptr || number->is_null()) return value;
  const std::string& text = number->number_text();
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// -1: the text does not say.
int64_t id_in(std::string_view token) {
  int64_t id = -1;
  if (token.starts_with(kTokenId)) std::from_chars(token.data() + kTokenId.size(), token.data() + token.size(), id);
  return id;
}

int64_t id_at(std::span<const int32_t> token_ids, size_t position, size_t num_positions, std::string_view token) {
  return token_ids.size() == num_positions ? token_ids[position] : id_in(token);
}

}  // namespace

ScoreColumns::ScoreColumns(io::Hdf5Writer& file, const std::string& group, const std::string& entries,
                           const std::string& token)
    : values_(file.numbers<float>(group + "/values", "natural logarithms; NaN: one that JSON cannot hold")),
      ids_(file.numbers<int32_t>(group + "/ids", "token of each value; -1: not known")),
      ranks_(file.numbers<int32_t>(group + "/ranks", "1: the most likely token; 0: not known")),
      positions_(file.numbers<int32_t>(group + "/positions",
                                       "which " + token + " a value is of; the first of each is its own score")),
      offsets_(file.numbers<int64_t>(group + "/offsets", "where the values of each of the " + entries +
                                                             " begin; one more than " + entries)) {
  offsets_.append(0);
}

void ScoreColumns::append(const JsonValue* logprob, int64_t id, int64_t rank, size_t position) {
  values_.append(as_float(logprob));
  ids_.append(static_cast<int32_t>(id));
  ranks_.append(static_cast<int32_t>(rank));
  positions_.append(static_cast<int32_t>(position));
}

void ScoreColumns::add(const JsonValue& scores, std::span<const int32_t> token_ids) {
  if (scores.is_array())
    add_native(scores);
  else if (const JsonValue* content = scores.find("content"))
    add_chat(*content, token_ids);
  else if (scores.find("tokens") != nullptr)
    add_completion(scores, token_ids);
  else
    add_flat(scores);
}

/// [{"id","token","logprob","rank","top":[{...}]}, ...] or, for prompts in OpenAI's answers, [{"id": {"logprob",
/// "rank", ...}, ...}, ...]; null for a position without scores.
void ScoreColumns::add_native(const JsonValue& positions) {
  for (size_t i = 0; i < positions.items().size(); ++i) {
    const JsonValue& position = positions.items()[i];
    if (position.is_null()) continue;
    if (position.find("logprob") == nullptr) {
      for (const auto& [id, entry] : position.members())
        append(entry.find("logprob"), std::stoll(id), entry.at("rank").as_int64(), i);
      continue;
    }
    const auto append_entry = [&](const JsonValue& entry) {
      append(entry.find("logprob"), entry.at("id").as_int64(), entry.at("rank").as_int64(), i);
    };
    append_entry(position);
    if (const JsonValue* top = position.find("top"))
      for (const JsonValue& entry : top->items()) append_entry(entry);
  }
}

void ScoreColumns::add_flat(const JsonValue& lists) {
  const auto& starts = lists.at("start_indices").items();
  const auto& ends = lists.at("end_indices").items();
  const auto& ids = lists.at("token_ids").items();
  for (size_t i = 0; i < starts.size(); ++i)
    for (auto at = static_cast<size_t>(starts[i].as_int64()); at < static_cast<size_t>(ends.at(i).as_int64()); ++at)
      append(&lists.at("logprobs").items().at(at), ids.at(at).as_int64(), lists.at("ranks").items().at(at).as_int64(),
             i);
}

void ScoreColumns::add_chat(const JsonValue& content, std::span<const int32_t> token_ids) {
  const size_t num_positions = content.items().size();
  for (size_t i = 0; i < num_positions; ++i) {
    const JsonValue& position = content.items()[i];
    append(position.find("logprob"), id_at(token_ids, i, num_positions, position.at("token").as_string()), 0, i);
    for (const JsonValue& entry : position.at("top_logprobs").items())
      append(entry.find("logprob"), id_in(entry.at("token").as_string()), 0, i);
  }
}

void ScoreColumns::add_completion(const JsonValue& lists, std::span<const int32_t> token_ids) {
  const auto& tokens = lists.at("tokens").items();
  for (size_t i = 0; i < tokens.size(); ++i) {
    append(&lists.at("token_logprobs").items().at(i), id_at(token_ids, i, tokens.size(), tokens[i].as_string()), 0, i);
    const JsonValue* top = lists.find("top_logprobs");
    if (top == nullptr || top->is_null() || top->items().at(i).is_null()) continue;
    for (const auto& [token, logprob] : top->items()[i].members()) append(&logprob, id_in(token), 0, i);
  }
}

}  // namespace tokenmill::rows
