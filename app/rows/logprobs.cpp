#include "app/rows/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include "app/rows/format.h"
#include "io/json.h"

namespace tokenmill::rows {
namespace {

using io::append_json_string;

/// "[" item "," item ... "]"
template <typename Items, typename Append>
void append_list(std::string& out, const Items& items, Append append) {
  out += '[';
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += ',';
    first = false;
    append(item);
  }
  out += ']';
}

size_t num_characters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::span<const TokenLogprob> behind_first(const PositionLogprobs& position) {
  return std::span(position).subspan(position.empty() ? 0 : 1);
}

}  // namespace

void LogprobWriter::append_token(std::string& out, int32_t id) const {
  if (tokens_as_ids_)
    fmt::format_to(std::back_inserter(out), "\"token_id:{}\"", id);
  else
    append_json_string(out, tokenizer_.token_bytes(id));
}

void LogprobWriter::append_entry(std::string& out, const TokenLogprob& entry) const {
  fmt::format_to(std::back_inserter(out), "\"id\":{},\"token\":", entry.token_id);
  append_token(out, entry.token_id);
  out += ",\"logprob\":";
  append_finite(out, entry.logprob);
  fmt::format_to(std::back_inserter(out), ",\"rank\":{}", entry.rank);
}

void LogprobWriter::append_native(std::string& out, Positions positions, bool after_first) const {
  out += after_first ? "[null" : "[";
  bool comma = after_first;
  for (const PositionLogprobs& position : positions) {
    out += comma ? ",{" : "{";
    comma = true;
    append_entry(out, position.at(0));
    if (position.size() > 1) {
      out += ",\"top\":";
      append_list(out, behind_first(position), [&](const TokenLogprob& entry) {
        out += '{';
        append_entry(out, entry);
        out += '}';
      });
    }
    out += '}';
  }
  out += ']';
}

void LogprobWriter::append_flat(std::string& out, Positions positions, bool after_first) const {
  std::vector<size_t> ends;
  std::vector<TokenLogprob> entries;
  if (after_first) ends.push_back(0);
  for (const PositionLogprobs& position : positions) {
    entries.insert(entries.end(), position.begin(), position.end());
    ends.push_back(entries.size());
  }
  std::vector<size_t> starts = ends;  // a position begins where the one before ends
  if (!starts.empty()) {
    std::rotate(starts.begin(), starts.end() - 1, starts.end());
    starts[0] = 0;
  }
  const auto number = [&](auto value) { fmt::format_to(std::back_inserter(out), "{}", value); };
  out += "{\"start_indices\":";
  append_list(out, starts, number);
  out += ",\"end_indices\":";
  append_list(out, ends, number);
  out += ",\"token_ids\":";
  append_list(out, entries, [&](const TokenLogprob& entry) { number(entry.token_id); });
  out += ",\"logprobs\":";
  append_list(out, entries, [&](const TokenLogprob& entry) { append_finite(out, entry.logprob); });
  out += ",\"ranks\":";
  append_list(out, entries, [&](const TokenLogprob& entry) { number(entry.rank); });
  out += ",\"decoded_tokens\":";
  append_list(out, entries, [&](const TokenLogprob& entry) { append_token(out, entry.token_id); });
  out += '}';
}

void LogprobWriter::append_chat_entry(std::string& out, const TokenLogprob& entry) const {
  out += "\"token\":";
  append_token(out, entry.token_id);
  out += ",\"logprob\":";
  append_finite(out, entry.logprob);
  out += ",\"bytes\":";
  if (!tokenizer_.id_to_token(entry.token_id)) {
    out += "null";
    return;
  }
  append_list(out, tokenizer_.token_bytes(entry.token_id),
              [&](char byte) { fmt::format_to(std::back_inserter(out), "{}", static_cast<unsigned char>(byte)); });
}

void LogprobWriter::append_chat(std::string& out, Positions positions) const {
  out += "{\"content\":";
  append_list(out, positions, [&](const PositionLogprobs& position) {
    out += '{';
    append_chat_entry(out, position.at(0));
    out += ",\"top_logprobs\":";
    append_list(out, behind_first(position), [&](const TokenLogprob& entry) {
      out += '{';
      append_chat_entry(out, entry);
      out += '}';
    });
    out += '}';
  });
  out += '}';
}

void LogprobWriter::append_prompt(std::string& out, Positions positions) const {
  out += "[null";
  for (const PositionLogprobs& position : positions) {
    out += ",{";
    for (size_t i = 0; i < position.size(); ++i) {
      const TokenLogprob& entry = position[i];
      if (i > 0 && entry.token_id == position[0].token_id) continue;
      fmt::format_to(std::back_inserter(out), "{}\"{}\":{{\"logprob\":", i == 0 ? "" : ",", entry.token_id);
      append_finite(out, entry.logprob);
      fmt::format_to(std::back_inserter(out), ",\"rank\":{},\"decoded_token\":", entry.rank);
      append_token(out, entry.token_id);
      out += '}';
    }
    out += '}';
  }
  out += ']';
}

/// An object whose keys are tokens' texts. Texts that two tokens share (parts of characters) stand once, for the first:
/// the more likely one, or of logprob_token_ids the one listed first. The chosen token is there even when it was not
/// among those asked for.
void LogprobWriter::append_top(std::string& out, const PositionLogprobs& position) const {
  std::set<std::string> seen;
  out += '{';
  const auto append = [&](const TokenLogprob& entry) {
    std::string key;
    append_token(key, entry.token_id);
    if (!seen.insert(key).second) return;
    if (seen.size() > 1) out += ',';
    out += key + ':';
    append_finite(out, entry.logprob);
  };
  for (const TokenLogprob& entry : behind_first(position)) append(entry);
  append(position.at(0));
  out += '}';
}

void LogprobWriter::append_completion(std::string& out, const Completion& completion) const {
  const PositionLogprobs unscored(completion.echoed_token_ids.empty() ? 0 : 1);
  std::vector<const PositionLogprobs*> positions;  // the first of a prompt has no score
  std::vector<int32_t> ids;
  const auto add = [&](const PositionLogprobs& position, int32_t id) {
    positions.push_back(&position);
    ids.push_back(id);
  };
  if (!unscored.empty()) add(unscored, completion.echoed_token_ids[0]);
  for (const PositionLogprobs& position : completion.echoed) add(position, position.at(0).token_id);
  for (const PositionLogprobs& position : completion.generated) add(position, position.at(0).token_id);

  out += "{\"tokens\":";
  append_list(out, ids, [&](int32_t id) { append_token(out, id); });
  out += ",\"token_logprobs\":";
  append_list(out, positions, [&](const PositionLogprobs* position) {
    position == &unscored ? void(out += "null") : append_finite(out, position->at(0).logprob);
  });
  out += ",\"top_logprobs\":";
  append_list(out, positions, [&](const PositionLogprobs* position) {
    position == &unscored ? void(out += "null") : append_top(out, *position);
  });
  out += ",\"text_offset\":";
  text::Detokenizer detokenizer(tokenizer_, completion.decode);
  size_t offset = 0;
  std::string piece;
  append_list(out, ids, [&](int32_t id) {
    fmt::format_to(std::back_inserter(out), "{}", offset);
    piece.clear();
    detokenizer.push(id, piece);
    offset += num_characters(piece);
  });
  out += '}';
}

}  // namespace tokenmill::rows
