#include "engine/text/added_tokens.h"

#include <algorithm>

#include "engine/text/unicode.h"

namespace tokenmill::text {
namespace {

size_t begin_of_trailing_space(std::string_view text) {
  while (!text.empty()) {
    const Character c = last_character(text);
    if (!is_white_space(c.code)) break;
    text.remove_suffix(c.bytes);
  }
  return text.size();
}

size_t size_of_leading_space(std::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    const Character c = first_character(text.substr(size));
    if (!is_white_space(c.code)) break;
    size += c.bytes;
  }
  return size;
}

bool stands_alone(std::string_view text, Span match) {
  const std::string_view before = text.substr(0, match.begin);
  const std::string_view after = text.substr(match.end);
  return (before.empty() || !is_word_character(last_character(before).code)) &&
         (after.empty() || !is_word_character(first_character(after).code));
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  roots_.fill(-1);
  std::erase_if(tokens_, [](const AddedToken& t) { return t.content.empty(); });
  for (size_t i = 0; i < tokens_.size(); ++i) insert(tokens_[i].content, static_cast<int32_t>(i));
}

int32_t AddedTokenMatcher::child(int32_t node, char byte) const {
  int32_t at = nodes_[static_cast<size_t>(node)].first_child;
  while (at >= 0 && nodes_[static_cast<size_t>(at)].byte != byte) at = nodes_[static_cast<size_t>(at)].next_sibling;
  return at;
}

void AddedTokenMatcher::insert(const std::string& content, int32_t token) {
  const auto add_node = [&](char byte, int32_t next_sibling) {
    nodes_.push_back({-1, next_sibling, -1, byte});
    return static_cast<int32_t>(nodes_.size() - 1);
  };
  int32_t& root = roots_[static_cast<unsigned char>(content[0])];
  if (root < 0) root = add_node(content[0], -1);
  int32_t node = root;
  for (const char byte : std::string_view(content).substr(1)) {
    int32_t next = child(node, byte);
    if (next < 0) {
      next = add_node(byte, nodes_[static_cast<size_t>(node)].first_child);
      nodes_[static_cast<size_t>(node)].first_child = next;
    }
    node = next;
  }
  int32_t& end = nodes_[static_cast<size_t>(node)].token;
  if (end < 0) end = token;
}

int32_t AddedTokenMatcher::longest_at(std::string_view text, size_t at) const {
  int32_t longest = -1;
  int32_t node = roots_[static_cast<unsigned char>(text[at])];
  while (node >= 0) {
    if (nodes_[static_cast<size_t>(node)].token >= 0) longest = nodes_[static_cast<size_t>(node)].token;
    if (++at == text.size()) break;
    node = child(node, text[at]);
  }
  return longest;
}

void AddedTokenMatcher::cut(std::string_view text, bool parse_special, std::vector<Section>& out) const {
  out.clear();
  size_t covered = 0;
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    const int32_t found = longest_at(text, at);
    if (found < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    Span match{at, at + token.content.size()};
    at = match.end;
    if (token.special && !parse_special) continue;
    if (token.single_word && !stands_alone(text, match)) continue;
    if (token.lstrip) match.begin = std::max(begin_of_trailing_space(text.substr(0, match.begin)), covered);
    if (token.rstrip) match.end += size_of_leading_space(text.substr(match.end));
    if (match.begin >= match.end) continue;  // all of it was swallowed by the rstrip of the one before
    if (covered < match.begin) out.push_back({{covered, match.begin}, -1});
    out.push_back({match, token.id});
    covered = match.end;
  }
  if (covered < text.size()) out.push_back({{covered, text.size()}, -1});
}

}  // namespace tokenmill::text
