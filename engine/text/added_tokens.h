#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/regex.h"

namespace tokenmill::text {

/// A token that is found in the text itself, before any splitting.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;  ///< a control token: skipped when decoding so, and found only when special tokens are parsed
  bool normalized = false;   ///< looked for in the normalized text (and its content is normalized too)
  bool lstrip = false;       ///< swallows white space on its left
  bool rstrip = false;       ///< swallows white space on its right
  bool single_word = false;  ///< counts only where no word character touches it
};

/// Finds added tokens in a text: leftmost, longest, without overlap. Immutable, thread-safe.
class AddedTokenMatcher {
 public:
  struct Section {
    Span span;
    int32_t id;  ///< -1: ordinary text
  };

  /// Tokens with empty content are never found. Of equal contents the first counts.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens = {});

  bool empty() const { return tokens_.empty(); }
  /// Cuts text (valid UTF-8) into ordinary text and tokens, left to right; no section is empty; those of tokens that
  /// swallow white space may overlap. Special tokens are passed over as text unless parse_special.
  void cut(std::string_view text, bool parse_special, std::vector<Section>& out) const;

 private:
  struct Node {
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t token = -1;  // index into tokens_
    char byte = 0;
  };
  int32_t child(int32_t node, char byte) const;
  void insert(const std::string& content, int32_t token);
  /// Index of the longest token that begins at `at`, -1 when none does.
  int32_t longest_at(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<int32_t, 256> roots_{};  // node of a first byte, -1 when no token begins so
};

}  // namespace tokenmill::text
