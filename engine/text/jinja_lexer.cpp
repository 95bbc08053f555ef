#include "engine/text/jinja_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "engine/text/jinja_number.h"
#include "engine/text/jinja_string_literal.h"
#include "engine/text/jinja_unicode.h"
#include "kernels/core/error.h"

namespace tokenmill::jinja {

void fail_parse(const std::string& name, int line, const std::string& text) {
  throw Error(ErrorKind::kConfig, "{}:{}: {}", name, line, text);
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "text outside of a tag";
    case TokenKind::kVariableBegin:
      return "{{";
    case TokenKind::kVariableEnd:
      return "}}";
    case TokenKind::kBlockBegin:
      return "{%";
    case TokenKind::kBlockEnd:
      return "%}";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return "a number";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return fmt::format("'{}'", token.text);
  }
}

namespace {

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& name) : name_(name), source_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_root();
    Token end;
    end.line = line_;
    tokens_.push_back(std::move(end));
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& text) const { fail_parse(name_, line_, text); }
  bool starts(std::string_view text) const { return source_.compare(at_, text.size(), text) == 0; }

  void move_to(size_t position) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
    at_ = position;
    line_starting_ = position > 0 && source_[position - 1] == '\n';
  }

  size_t skip_space(size_t position) const {
    while (position < source_.size()) {
      size_t next = position;
      if (!is_space(next_code_point(source_, next))) break;
      position = next;
    }
    return position;
  }

  // Text before a tag: `sign` is the tag's "-", "+" or nothing.
  void add_data(size_t end, char sign, bool strip_line) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      text = strip_space(text, false, true);
    } else if (sign != '+' && strip_line) {
      const size_t newline = text.rfind('\n');
      const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
      if (start > 0 || line_starting_)
        if (strip_space(text.substr(start), true, false).empty()) text = text.substr(0, start);
    }
    if (!text.empty()) push(TokenKind::kData, std::string(text));
  }

  void push(TokenKind kind, std::string text) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }

  char sign_at(size_t position) const {
    const char c = position < source_.size() ? source_[position] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  size_t find_tag() const {
    for (size_t at = source_.find('{', at_); at != std::string::npos; at = source_.find('{', at + 1))
      if (at + 1 < source_.size() && (source_[at + 1] == '{' || source_[at + 1] == '%' || source_[at + 1] == '#'))
        return at;
    return std::string::npos;
  }

  void read_root() {
    const size_t tag = find_tag();
    if (tag == std::string::npos) {
      add_data(source_.size(), '+', false);
      move_to(source_.size());
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    size_t inside = tag + 2 + (sign == '\0' ? 0 : 1);
    size_t raw_end = 0;
    if (kind == '%' && match_word_tag(tag, "raw", false, raw_end)) {
      add_data(tag, sign, true);
      move_to(raw_end);
      read_raw();
      return;
    }
    add_data(tag, sign, kind != '{');
    move_to(inside);
    if (kind == '#') {
      read_comment();
    } else {
      push(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
      read_tag(kind == '%');
    }
  }

  // Matches "{% WORD %}" at `tag` with any signs; `end` is behind it. Only endraw takes the newline after it.
  bool match_word_tag(size_t tag, std::string_view word, bool trim_newline, size_t& end) const {
    size_t at = tag + 2;
    if (sign_at(at) != '\0') ++at;
    at = skip_space(at);
    if (source_.compare(at, word.size(), word) != 0) return false;
    at = skip_space(at + word.size());
    if (source_.compare(at, 3, "-%}") == 0) {
      end = skip_space(at + 3);
      return true;
    }
    if (trim_newline && source_.compare(at, 3, "+%}") == 0) {
      end = at + 3;
      return true;
    }
    if (source_.compare(at, 2, "%}") != 0) return false;
    end = at + 2;
    if (trim_newline && end < source_.size() && source_[end] == '\n') ++end;
    return true;
  }

  void read_raw() {
    for (size_t at = source_.find("{%", at_); at != std::string::npos; at = source_.find("{%", at + 2)) {
      size_t end = 0;
      if (!match_word_tag(at, "endraw", true, end)) continue;
      add_data(at, sign_at(at + 2), true);
      move_to(end);
      return;
    }
    fail("a raw block has no {% endraw %}");
  }

  void read_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail("a comment has no #}");
    size_t next = end + 2;
    const char sign = end > at_ ? source_[end - 1] : '\0';
    if (sign == '-')
      next = skip_space(next);
    else if (sign != '+' && next < source_.size() && source_[next] == '\n')
      ++next;
    move_to(next);
  }

  // The end of a tag at the current place: its length with what it strips, or 0.
  size_t match_end(bool block) const {
    const std::string_view close = block ? "%}" : "}}";
    if (source_[at_] == '-' && source_.compare(at_ + 1, 2, close) == 0) return skip_space(at_ + 3) - at_;
    if (block && source_[at_] == '+' && source_.compare(at_ + 1, 2, close) == 0) return 3;
    if (!starts(close)) return 0;
    return block && at_ + 2 < source_.size() && source_[at_ + 2] == '\n' ? 3 : 2;
  }

  void read_tag(bool block) {
    std::string open;  // brackets not closed yet
    while (at_ < source_.size()) {
      if (open.empty()) {
        if (const size_t length = match_end(block); length > 0) {
          push(block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
          move_to(at_ + length);
          return;
        }
      }
      if (const size_t next = skip_space(at_); next > at_) {
        move_to(next);
        continue;
      }
      read_token(open);
    }
  }

  void read_token(std::string& open) {
    const char c = source_[at_];
    if (is_digit_char(c)) return read_number();
    if (c == '\'' || c == '"') return read_string(c);
    size_t end = at_;
    while (end < source_.size()) {
      size_t next = end;
      const char32_t code_point = next_code_point(source_, next);
      if (!is_word(code_point) && !(code_point >= 0x80 && is_identifier("a" + source_.substr(end, next - end)))) break;
      end = next;
    }
    if (end > at_) {
      const std::string word = source_.substr(at_, end - at_);
      if (!is_identifier(word)) fail(fmt::format("'{}' is not a name", word));
      push(TokenKind::kName, word);
      move_to(end);
      return;
    }
    read_operator(open);
  }

  void read_operator(std::string& open) {
    constexpr std::array<std::string_view, 26> kOperators = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                                             "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                             ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto found = std::find_if(kOperators.begin(), kOperators.end(), [&](auto text) { return starts(text); });
    if (found == kOperators.end()) {
      size_t next = at_;
      next_code_point(source_, next);
      fail(fmt::format("unexpected character '{}'", source_.substr(at_, next - at_)));
    }
    const char c = (*found)[0];
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c == '{') open += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail(fmt::format("unexpected '{}'", c));
      if (open.back() != c) fail(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
      open.pop_back();
    }
    push(TokenKind::kOperator, std::string(*found));
    move_to(at_ + found->size());
  }

  // Digits with single underscores between them; 0 when there is none.
  size_t digits(size_t position) const {
    const size_t begin = position;
    while (position < source_.size() && (is_digit_char(source_[position]) ||
                                         (position > begin && source_[position] == '_' &&
                                          position + 1 < source_.size() && is_digit_char(source_[position + 1]))))
      ++position;
    return position - begin;
  }

  void read_number() {
    const size_t whole = digits(at_);
    size_t end = at_ + whole;
    bool is_float = false;
    if (at_ == 0 || source_[at_ - 1] != '.') {
      size_t fraction_end = end;
      if (end < source_.size() && source_[end] == '.' && digits(end + 1) > 0) fraction_end = end + 1 + digits(end + 1);
      is_float = fraction_end > end;
      size_t exponent = fraction_end;
      if (exponent < source_.size() && (source_[exponent] == 'e' || source_[exponent] == 'E')) {
        ++exponent;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        if (digits(exponent) > 0) {
          fraction_end = exponent + digits(exponent);
          is_float = true;
        }
      }
      if (is_float) end = fraction_end;
    }
    if (is_float)
      push_float(end);
    else
      push_integer();
  }

  void push_float(size_t end) {
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    push(TokenKind::kFloat, text);
    tokens_.back().real = parse_real(text).value_or(0);
    move_to(end);
  }

  void push_integer() {
    int base = 10;
    size_t begin = at_;
    if (source_[at_] == '0' && at_ + 2 < source_.size()) {
      const char mark = static_cast<char>(source_[at_ + 1] | 0x20);
      const int marked = mark == 'b' ? 2 : (mark == 'o' ? 8 : (mark == 'x' ? 16 : 10));
      if (marked != 10 && digit_value(source_[at_ + 2]) < marked) {
        base = marked;
        begin = at_ + 2;
      }
    }
    std::string text;
    size_t end = begin;
    // A decimal that starts with 0 is zeros only, as in Python.
    const int top = base == 10 && source_[begin] == '0' ? 1 : base;
    while (end < source_.size() &&
           (digit_value(source_[end]) < top ||
            (source_[end] == '_' && end + 1 < source_.size() && digit_value(source_[end + 1]) < top)))
      ++end;
    text = source_.substr(begin, end - begin);
    std::erase(text, '_');
    push(TokenKind::kInteger, text);
    const auto [last, code] = std::from_chars(text.data(), text.data() + text.size(), tokens_.back().integer, base);
    if (code != std::errc{}) fail(fmt::format("integer {} does not fit into 64 bits", text));
    move_to(end);
  }

  static int digit_value(char c) {
    if (is_digit_char(c)) return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
  }

  void read_string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail(fmt::format("a string has no closing {}", quote));
    std::string problem;
    std::string text = unescape_literal(std::string_view(source_).substr(at_ + 1, end - at_ - 1), problem);
    if (!problem.empty()) fail(problem);
    push(TokenKind::kString, std::move(text));
    move_to(end + 1);
  }

  const std::string& name_;
  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& name) { return Lexer(source, name).run(); }

}  // namespace tokenmill::jinja
