#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/text/regex.h"
#include "engine/text/unicode.h"

namespace tokenmill::text {

/// Replaces every match of a pattern, or of a plain text, by a literal text.
class Replacement {
 public:
  static Replacement of_text(std::string from, std::string to);
  static Replacement of_pattern(Regex from, std::string to);
  std::string apply(std::string_view text) const;
  /// The plain text it looks for; nullptr for a pattern.
  const std::string* plain_text() const { return std::get_if<std::string>(&from_); }

 private:
  Replacement(std::variant<std::string, Regex> from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  std::variant<std::string, Regex> from_;
  std::string to_;
};

/// What happens to the text between added tokens before it is split: a sequence of steps. Immutable, thread-safe.
class Normalizer {
 public:
  struct Prepend {
    std::string text;
  };  ///< in front of a text that is not empty
  struct Strip {
    bool left;
    bool right;
  };  ///< white space
  struct Lowercase {};
  struct StripAccents {};  ///< drops marks (category M*)
  using Step = std::variant<UnicodeForm, Prepend, Strip, Lowercase, StripAccents, Replacement>;

  template <typename S>
  void add(S step) {
    steps_.emplace_back(std::move(step));
  }
  bool empty() const { return steps_.empty(); }
  /// text is valid UTF-8; so is the result.
  std::string apply(std::string_view text) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace tokenmill::text
