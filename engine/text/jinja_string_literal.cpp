#include "engine/text/jinja_string_literal.h"

#include <fmt/format.h>

#include "engine/text/jinja_unicode.h"

namespace tokenmill::jinja {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Reads exactly `count` hexadecimal digits at `at`; false when they are not there.
bool read_hex(std::string_view text, size_t& at, int count, char32_t& out) {
  out = 0;
  for (int i = 0; i < count; ++i, ++at) {
    if (at >= text.size() || hex_value(text[at]) < 0) return false;
    out = out * 16 + static_cast<char32_t>(hex_value(text[at]));
  }
  return true;
}

void read_octal(std::string_view text, size_t& at, std::string& out) {
  char32_t code_point = 0;
  for (int i = 0; i < 3 && at < text.size() && text[at] >= '0' && text[at] <= '7'; ++i, ++at)
    code_point = code_point * 8 + static_cast<char32_t>(text[at] - '0');
  append_code_point(out, code_point);
}

void read_hex_escape(std::string_view text, size_t& at, char kind, std::string& out, std::string& problem) {
  const int count = kind == 'x' ? 2 : (kind == 'u' ? 4 : 8);
  char32_t code_point = 0;
  if (!read_hex(text, at, count, code_point))
    problem = fmt::format("truncated \\{} escape in a string", kind);
  else if (code_point > 0x10ffff)
    problem = "a \\U escape in a string is beyond U+10FFFF";
  else if (code_point >= 0xd800 && code_point <= 0xdfff)
    problem = "a \\u escape in a string is half of a surrogate pair; write the character or \\U........";
  else
    append_code_point(out, code_point);
}

}  // namespace

std::string unescape_literal(std::string_view text, std::string& problem) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size() && problem.empty();) {
    if (text[at] != '\\') {
      out += text[at++];
      continue;
    }
    const size_t escaped = ++at;
    const char32_t c = next_code_point(text, at);
    constexpr std::string_view kNames = "abfnrtv\\'\"";
    constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
    const size_t known = c < 0x80 ? kNames.find(static_cast<char>(c)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      out += kValues[known];
    } else if (c >= '0' && c <= '7') {
      at = escaped;
      read_octal(text, at, out);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      read_hex_escape(text, at, static_cast<char>(c), out, problem);
    } else if (c == 'N') {
      problem = "\\N{...} escapes in strings are not supported; write the character itself";
    } else if (c >= 0x80) {
      const auto number = static_cast<uint32_t>(c);
      out += '\\';
      out += number < 0x100 ? fmt::format("x{:02x}", number)
                            : (number < 0x10000 ? fmt::format("u{:04x}", number) : fmt::format("U{:08x}", number));
    } else if (c != '\n') {
      out += '\\';
      out += static_cast<char>(c);
    }
  }
  return out;
}

}  // namespace tokenmill::jinja
