// From the dialect of tokenizer.json (Oniguruma, Ruby syntax) to PCRE2's. Copied: literals, groups, alternatives,
// quantifiers, look-around. Rewritten: \s \w \d \h \b (their sets differ), \p{Script} (PCRE2 would take script
// extensions), \uHHHH, {,n}. Refused: everything that would compile to another meaning.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <vector>

#include "engine/text/regex.h"
#include "kernels/core/error.h"

namespace tokenmill::text {
namespace {

// PCRE2's \s also matches U+180E under UCP; its \w lacks marks and connectors. Oniguruma's \w has six numbers of
// Latin-1.
constexpr std::string_view kSpace =
    R"(\x09-\x0D\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x00-\x08\x0E-\x1F\x21-\x84\x86-\x9F\xA1-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E})"
    R"(\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\xB2\xB3\xB9\xBC-\xBE)";
constexpr std::string_view kHex = "0-9A-Fa-f";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/// True when PCRE2 knows the name as a script.
bool is_script(std::string_view name) {
  const std::string probe = "\\p{sc:" + std::string(name) + "}";
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(probe.data()), probe.size(), PCRE2_UTF | PCRE2_UCP,
                                   &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : in_(pattern), where_(where) {}

  std::string run() {
    while (!at_end()) {
      switch (peek()) {
        case '\\':
          escape();
          break;
        case '[':
          bracket();
          break;
        case '(':
          group();
          break;
        case '{':
          braces();
          break;
        case ')':
          if (caseless_.size() > 1) caseless_.pop_back();
          out_ += next();
          break;
        default:
          check_caseless_literal();
          out_ += next();
      }
    }
    return std::move(out_);
  }

 private:
  bool at_end(size_t ahead = 0) const { return at_ + ahead >= in_.size(); }
  char peek(size_t ahead = 0) const { return at_end(ahead) ? '\0' : in_[at_ + ahead]; }
  char next() { return in_[at_++]; }
  bool starts_with(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  [[noreturn]] void refuse(std::string_view what) const {
    throw Error(
        ErrorKind::kInput,
        "{}: the pattern \"{}\" holds {} at byte {}, which tokenmill does not support; rewrite it with literals, "
        "[...], \\p{{...}}, \\s \\S \\d \\D \\w, groups, look-around and quantifiers",
        where_, in_, what, at_);
  }

  bool caseless() const { return caseless_.back(); }

  /// Without case Oniguruma also matches one letter for two ("ss" for U+00DF, "fi" for U+FB01); PCRE2 does not.
  void check_caseless_literal() const {
    if (!caseless()) return;
    if (static_cast<unsigned char>(peek()) >= 0x80) refuse("a letter beyond ASCII under (?i)");
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
    const std::string pair{lower(peek()), lower(peek(1))};
    for (const std::string_view folded : {"ss", "ff", "fi", "fl", "st"}) {
      if (pair == folded) refuse("\"" + pair + "\", which is also a single letter, under (?i)");
    }
  }

  /// \p{...} or \P{...}, at the backslash.
  void property() {
    bool negated = peek(1) == 'P';
    if (peek(2) != '{') refuse("a property without braces");
    const size_t close = in_.find('}', at_);
    if (close == std::string_view::npos) refuse("a property without its closing brace");
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const bool plain =
        !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return is_letter(c) || c == '_'; });
    if (!plain) refuse("a property that is not a plain name");
    out_ += negated ? "\\P{" : "\\p{";
    if (name.size() > 2 && is_script(name)) out_ += "sc:";
    out_.append(name) += '}';
    at_ = close + 1;
  }

  /// Escapes with the same translation inside and outside of [...]. Returns false when the escape is none of them.
  bool shared_escape() {
    const char c = peek(1);
    switch (c) {
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        out_ += '\\';
        out_ += c;
        at_ += 2;
        return true;
      case 'v':
        out_ += "\\x0B";
        at_ += 2;
        return true;  // a vertical tab; PCRE2's \v is a set
      case 'x':
        hex_escape();
        return true;
      case 'u': {
        if (!is_hex(peek(2)) || !is_hex(peek(3)) || !is_hex(peek(4)) || !is_hex(peek(5)))
          refuse("\\u without four hex digits");
        append_code(in_.substr(at_ + 2, 4));
        at_ += 6;
        return true;
      }
      case '\0':
        if (at_end(1)) refuse("a backslash at the end");
        [[fallthrough]];
      default:
        break;
    }
    if (is_letter(c) || is_digit(c)) return false;
    if (static_cast<unsigned char>(c) >= 0x80 && caseless()) refuse("a letter beyond ASCII under (?i)");
    if (static_cast<unsigned char>(c) < 0x80) out_ += '\\';  // a character beyond ASCII stands for itself
    out_ += c;
    at_ += 2;
    return true;
  }

  void hex_escape() {
    if (peek(2) == '{') {
      const size_t close = in_.find('}', at_);
      if (close == std::string_view::npos) refuse("\\x{ without its closing brace");
      const auto digits = in_.substr(at_ + 3, close - at_ - 3);
      if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_hex)) refuse("\\x{} without hex digits");
      append_code(digits);
      at_ = close + 1;
      return;
    }
    size_t count = 0;
    while (count < 2 && is_hex(peek(2 + count))) ++count;
    const auto digits = in_.substr(at_ + 2, count);
    if (count == 0 || (count == 2 && digits[0] >= '8')) refuse("\\x with a raw byte");
    append_code(digits);
    at_ += 2 + count;
  }

  void append_code(std::string_view digits) {
    if (caseless() && digits.find_first_not_of('0') != std::string_view::npos && digits.size() > 2) {
      refuse("a character beyond ASCII under (?i)");
    }
    out_.append("\\x{").append(digits) += '}';
  }

  /// At a backslash outside of [...].
  void escape() {
    const char c = peek(1);
    if (c == 'p' || c == 'P') return property();
    const std::string word = "[" + std::string(kWord) + "]";
    std::string set;
    switch (c) {
      case 's':
        set = "[" + std::string(kSpace) + "]";
        break;
      case 'S':
        set = "[^" + std::string(kSpace) + "]";
        break;
      case 'd':
        set = "\\p{Nd}";
        break;
      case 'D':
        set = "\\P{Nd}";
        break;
      case 'w':
        set = word;
        break;
      case 'W':
        set = "[^" + std::string(kWord) + "]";
        break;
      case 'h':
        set = "[" + std::string(kHex) + "]";
        break;
      case 'b':
        set = "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))";
        break;
      case 'B':
        set = "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))";
        break;
      case 'A':
        set = "\\A";
        break;
      case 'z':
        set = "\\z";
        break;
      case 'Z':
        set = "\\Z";
        break;
      default:
        break;
    }
    if (!set.empty()) {
      out_ += set;
      at_ += 2;
      return;
    }
    if (c >= '1' && c <= '9') {
      out_ += next();
      while (is_digit(peek())) out_ += next();
      return;
    }
    if (!shared_escape()) refuse("the escape \\" + std::string(1, c));
  }

  /// At '(': copies what opens the group.
  void group() {
    if (starts_with("(*")) refuse("a group that begins with *");
    if (!starts_with("(?")) {
      out_ += next();
      caseless_.push_back(caseless());
      return;
    }
    for (const std::string_view opening :
         {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)", "(?-i:", "(?-i)"}) {
      if (starts_with(opening)) {
        out_ += opening;
        at_ += opening.size();
        const bool now = opening.starts_with("(?i") || (caseless() && !opening.starts_with("(?-i"));
        if (opening.ends_with(")")) {
          caseless_.back() = now;  // until the group that holds it ends
        } else {
          caseless_.push_back(now);
        }
        return;
      }
    }
    refuse("an unusual group " + std::string(in_.substr(at_, 4)));
  }

  /// At '{': a quantifier, or a brace that stands for itself.
  void braces() {
    size_t i = at_ + 1;
    const auto digits = [&] {
      const size_t begin = i;
      while (i < in_.size() && is_digit(in_[i])) ++i;
      return in_.substr(begin, i - begin);
    };
    const auto low = digits();
    const bool comma = i < in_.size() && in_[i] == ',';
    if (comma) ++i;
    const auto high = comma ? digits() : std::string_view{};
    if (i >= in_.size() || in_[i] != '}' || (low.empty() && high.empty())) {
      out_ += "\\{";
      ++at_;
      return;
    }
    ++i;
    const char after = i < in_.size() ? in_[i] : '\0';
    if (after == '+' || (after == '?' && !comma)) refuse("a {...} quantifier followed by " + std::string(1, after));
    out_.append("{").append(low.empty() ? "0" : low);
    if (comma) out_.append(",").append(high);
    out_ += '}';
    at_ = i;
  }

  /// At '[': copies the whole class.
  void bracket() {
    out_ += next();
    if (peek() == '^') out_ += next();
    if (peek() == ']') refuse("an empty [] class");
    bool first = true;
    bool after_set = false;   // the last item was a set such as \s: a '-' behind it stands for itself
    bool open_range = false;  // "a-" was read: a set cannot end a range
    while (true) {
      if (at_end()) refuse("a [ without its ]");
      const char c = peek();
      if (c == ']') break;
      if (c == '[') refuse(peek(1) == ':' ? "a POSIX class" : "a class inside a class");
      if (c == '&' && peek(1) == '&') refuse("an intersection &&");
      if (c == '\\') {
        const bool set = bracket_escape();
        if (set && open_range) refuse("a range that ends in a set");
        after_set = set;
        open_range = false;
      } else if (c == '-') {
        const bool literal = first || after_set || peek(1) == ']' || open_range;
        out_ += literal ? "\\-" : "-";
        ++at_;
        open_range = !literal;
        after_set = false;
      } else {
        if (caseless() && static_cast<unsigned char>(c) >= 0x80) refuse("a letter beyond ASCII in a class under (?i)");
        out_ += next();
        open_range = after_set = false;
      }
      first = false;
    }
    out_ += next();
  }

  /// At a backslash inside [...]. True when it stands for a set.
  bool bracket_escape() {
    const char c = peek(1);
    std::string_view set;
    switch (c) {
      case 'p':
      case 'P':
        if (caseless()) refuse("a property in a class under (?i)");
        property();
        return true;
      case 's':
        set = kSpace;
        break;
      case 'S':
        set = kNotSpace;
        break;
      case 'd':
        set = "\\p{Nd}";
        break;
      case 'D':
        set = "\\P{Nd}";
        break;
      case 'w':
        if (caseless()) refuse("\\w in a class under (?i)");
        set = kWord;
        break;
      case 'h':
        set = kHex;
        break;
      case 'b':
        out_ += "\\x08";
        at_ += 2;
        return false;
      default:
        break;
    }
    if (!set.empty()) {
      out_ += set;
      at_ += 2;
      return true;
    }
    if (!shared_escape()) refuse("the escape \\" + std::string(1, c) + " inside a class");
    return false;
  }

  std::string_view in_;
  std::string_view where_;
  size_t at_ = 0;
  std::string out_;
  std::vector<bool> caseless_{false};  // one per open group, and the whole pattern
};

}  // namespace

std::string translate_to_pcre2(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).run();
}

std::string escape_regex(std::string_view text) {
  constexpr std::string_view kSyntax = "\\.+*?()|[]{}^$-&~#/";
  std::string out;
  for (const char c : text) {
    if (kSyntax.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace tokenmill::text
