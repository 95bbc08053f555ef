// Methods of strings: padding, and questions about characters.
#include <algorithm>

#include "engine/text/jinja_methods_string.h"
#include "engine/text/jinja_unicode.h"

namespace tokenmill::jinja {
namespace {

std::string repeated(Runtime& runtime, const std::string& unit, int64_t count) {
  std::string out;
  count = std::max<int64_t>(count, 0);
  runtime.charge(count);
  for (int64_t i = 0; i < count; ++i) out += unit;
  return out;
}

enum class Side { kLeft, kRight, kBoth };

template <Side side>
Value method_pad(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "pad", {"width", "fillchar"}, 1);
  const std::string fill = bound[1] == nullptr ? " " : bound.text(1);
  if (count_code_points(fill) != 1) throw RenderError("The fill character must be exactly one character long");
  const int64_t width = bound.integer(0, 0);
  const int64_t missing = width - self.length();
  if (missing <= 0) return self;
  if (side == Side::kLeft) return runtime.string(self.text() + repeated(runtime, fill, missing));
  if (side == Side::kRight) return runtime.string(repeated(runtime, fill, missing) + self.text());
  const int64_t left = missing / 2 + (missing & width & 1);
  return runtime.string(repeated(runtime, fill, left) + self.text() + repeated(runtime, fill, missing - left));
}

Value method_zfill(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "zfill", {"width"}, 1);
  const int64_t missing = bound.integer(0, 0) - self.length();
  if (missing <= 0) return self;
  const std::string& text = self.text();
  const size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  return runtime.string(text.substr(0, sign) + repeated(runtime, "0", missing) + text.substr(sign));
}

template <bool (*matches)(char32_t), bool empty_result>
Value method_all(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "str method", {});
  const std::string& text = self.text();
  runtime.charge_bytes(text.size());
  if (text.empty()) return Value::boolean(empty_result);
  for (size_t at = 0; at < text.size();)
    if (!matches(next_code_point(text, at))) return Value::boolean(false);
  return Value::boolean(true);
}

bool is_alnum(char32_t c) { return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c); }
bool is_ascii(char32_t c) { return c < 0x80; }

template <bool upper>
Value method_is_case(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return Value::boolean(find_test(upper ? "upper" : "lower")(runtime, self, arguments));
}

Value method_isidentifier(Runtime&, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "isidentifier", {});
  return Value::boolean(is_identifier(self.text()));
}

Value method_istitle(Runtime&, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "istitle", {});
  bool cased = false;
  bool after_cased = false;
  for (size_t at = 0; at < self.text().size();) {
    const char32_t c = next_code_point(self.text(), at);
    const bool first = is_upper(c) || is_title(c);
    if (first ? after_cased : (is_lower(c) && !after_cased)) return Value::boolean(false);
    after_cased = first || is_lower(c);
    cased = cased || after_cased;
  }
  return Value::boolean(cased);
}

Value method_expandtabs(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "expandtabs", {"tabsize"});
  const int64_t size = bound.integer(0, 8);
  std::string out;
  int64_t column = 0;
  const std::string& text = self.text();
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      out += repeated(runtime, " ", spaces);
      column += spaces;
      continue;
    }
    column = c == '\n' || c == '\r' ? 0 : column + 1;
    out.append(text, begin, at - begin);
  }
  return runtime.string(std::move(out));
}

constexpr StringMethod kMethods[] = {
    {"ljust", method_pad<Side::kLeft>},
    {"rjust", method_pad<Side::kRight>},
    {"center", method_pad<Side::kBoth>},
    {"zfill", method_zfill},
    {"expandtabs", method_expandtabs},
    {"isalpha", method_all<is_alpha, false>},
    {"isdigit", method_all<is_digit, false>},
    {"isdecimal", method_all<is_decimal, false>},
    {"isnumeric", method_all<is_numeric, false>},
    {"isalnum", method_all<is_alnum, false>},
    {"isspace", method_all<is_space, false>},
    {"isascii", method_all<is_ascii, true>},
    {"isprintable", method_all<is_printable, true>},
    {"isidentifier", method_isidentifier},
    {"islower", method_is_case<false>},
    {"isupper", method_is_case<true>},
    {"istitle", method_istitle},
};

}  // namespace

std::span<const StringMethod> string_layout_methods() { return kMethods; }

}  // namespace tokenmill::jinja
