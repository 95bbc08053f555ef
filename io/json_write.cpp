// Writing JSON text: values, string literals, numbers.
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "io/json.h"
#include "io/utf8.h"
#include "kernels/core/check.h"

namespace tokenmill::io {
namespace {

void append_value(std::string& out, const JsonValue& value) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      out += "null";
      return;
    case JsonValue::Kind::kBool:
      out += value.as_bool() ? "true" : "false";
      return;
    case JsonValue::Kind::kNumber:
      out += value.number_text();
      return;
    case JsonValue::Kind::kString:
      append_json_string(out, value.as_string());
      return;
    case JsonValue::Kind::kArray: {
      char separator = '[';
      for (const JsonValue& item : value.items()) {
        out += std::exchange(separator, ',');
        append_value(out, item);
      }
      out += value.items().empty() ? "[]" : "]";
      return;
    }
    case JsonValue::Kind::kObject: {
      char separator = '{';
      for (const auto& [name, member] : value.members()) {
        out += std::exchange(separator, ',');
        append_json_string(out, name);
        out += ':';
        append_value(out, member);
      }
      out += value.members().empty() ? "{}" : "}";
      return;
    }
  }
}

void append_escape(std::string& out, unsigned char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  constexpr char kHex[] = "0123456789abcdef";
  out += "\\u00";
  out += kHex[c >> 4];
  out += kHex[c & 15];
}

/// Length of the longest prefix of printable ASCII without quote and backslash: copied as it is.
size_t plain_prefix(const char* text, size_t size) {
  constexpr uint64_t kOnes = 0x0101010101010101u;
  constexpr uint64_t kHigh = 0x8080808080808080u;
  const auto has_zero = [](uint64_t x) { return (x - kOnes) & ~x & kHigh; };
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t word;
    std::memcpy(&word, text + i, 8);
    const uint64_t control = (word - kOnes * 0x20) & ~word;
    if ((word | control | has_zero(word ^ kOnes * '"') | has_zero(word ^ kOnes * '\\')) & kHigh) break;
  }
  for (; i < size; ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c >= 0x80 || c == '"' || c == '\\') break;
  }
  return i;
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const size_t plain = plain_prefix(text.data(), text.size());
    out.append(text.data(), plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    const auto c = static_cast<unsigned char>(text[0]);
    if (c < 0x80) {
      append_escape(out, c);
      text.remove_prefix(1);
      continue;
    }
    const Utf8Step step = utf8_step(text);
    out.append(step.valid ? text.substr(0, step.bytes) : std::string_view("\xEF\xBF\xBD"));
    text.remove_prefix(step.bytes);
  }
  out += '"';
}

void append_json_number(std::string& out, double value) {
  TM_ASSERT(std::isfinite(value), "JSON has no {}", value);
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  TM_ASSERT(error == std::errc{});
  out.append(text.data(), end);
}

std::string to_json(const JsonValue& value) {
  std::string out;
  append_value(out, value);
  return out;
}

}  // namespace tokenmill::io
