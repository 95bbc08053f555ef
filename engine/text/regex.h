#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tokenmill::text {

struct Span {
  size_t begin;
  size_t end;
  bool operator==(const Span&) const = default;
};

/// A compiled split pattern. Patterns are written in the dialect of tokenizer.json (Oniguruma, Ruby syntax); they are
/// translated to PCRE2, and a construct that would mean something else there is refused by name. Immutable; copies
/// share the compiled code; safe to use from several threads.
class Regex {
 public:
  /// Throws Error(kInput) that starts with `where`, quotes the pattern and names what is not supported.
  Regex(std::string_view pattern, std::string_view where);

  /// First match at or after `from`. Look-around sees nothing outside `text`, which must be valid UTF-8.
  /// Throws Error(kInput) when the pattern runs into PCRE2's match limit or its stack.
  std::optional<Span> find(std::string_view text, size_t from) const;

  /// Calls visit(Span) for each match from left to right; an empty match right behind the last match does not count.
  template <typename Visit>
  void for_each_match(std::string_view text, Visit&& visit) const;

  const std::string& pattern() const { return pattern_; }

 private:
  struct Code;  // owns the pcre2_code
  std::string pattern_;
  std::shared_ptr<const Code> code_;
};

/// The same pattern in PCRE2's dialect (options UTF, UCP, MULTILINE, newline LF).
/// Throws Error(kInput) that starts with `where` for constructs that cannot be carried over.
std::string translate_to_pcre2(std::string_view pattern, std::string_view where);
/// A pattern that matches the text literally.
std::string escape_regex(std::string_view text);

template <typename Visit>
void Regex::for_each_match(std::string_view text, Visit&& visit) const {
  size_t from = 0;
  std::optional<size_t> last_end;
  while (from <= text.size()) {
    const auto match = find(text, from);
    if (!match) return;
    if (match->begin == match->end && last_end == match->end) {
      ++from;  // to the next character: never start inside one
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
      continue;
    }
    from = match->end;
    last_end = match->end;
    visit(*match);
  }
}

}  // namespace tokenmill::text
