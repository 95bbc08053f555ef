#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/text/regex.h"

namespace tokenmill::text {

/// GPT-2's split pattern, which ByteLevel with use_regex means.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
enum class PrependScheme { kAlways, kFirst, kNever };

/// Cuts a normalized text into the pieces that the model encodes on their own. Immutable, thread-safe.
class PreTokenizer {
 public:
  /// Splits by a pattern's matches (invert: by what lies between them).
  struct Split {
    Regex pattern;
    SplitBehavior behavior;
    bool invert;
  };
  /// Splits by a property of single characters; each such character is a match of its own.
  struct CharacterSplit {
    bool (*matches)(char32_t code);
    SplitBehavior behavior;
  };
  /// ' ' becomes the replacement character, one more goes in front as the scheme says; split cuts before each of them.
  struct Metaspace {
    std::string replacement;
    PrependScheme prepend_scheme;
    bool split;
  };
  /// Puts ' ' in front of each piece that does not begin with one.
  struct PrefixSpace {};
  using Step = std::variant<Split, CharacterSplit, Metaspace, PrefixSpace>;

  template <typename S>
  void add(S step) {
    steps_.emplace_back(std::move(step));
  }

  /// Cuts text (valid UTF-8, may be rewritten) into non-empty spans of it. at_start: the text stands at the very
  /// beginning of what the user gave (PrependScheme::kFirst).
  void apply(std::string& text, std::vector<Span>& pieces, bool at_start) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace tokenmill::text
