#include "io/utf8.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

namespace tokenmill::io {

Utf8Step utf8_step(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true};
  size_t length = 0;
  unsigned char low = 0x80;  // allowed range of the second byte
  unsigned char high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {1, false};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size() || byte(i) < low || byte(i) > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

size_t find_invalid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    if (i + 8 <= text.size()) {
      uint64_t word;
      std::memcpy(&word, text.data() + i, 8);
      if ((word & 0x8080808080808080u) == 0) {
        i += 8;
        continue;
      }
    }
    const Utf8Step step = utf8_step(text.substr(i));
    if (!step.valid) return i;
    i += step.bytes;
  }
  return std::string_view::npos;
}

std::string excerpt(std::string_view text, size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    const bool escaped = !step.valid || byte < 0x20 || byte == 0x7f;
    const std::string piece = escaped ? fmt::format("\\x{:02x}", byte) : std::string(text.substr(0, step.bytes));
    if (out.size() + piece.size() > max_bytes) return out + "...";
    out += piece;
    text.remove_prefix(escaped ? 1 : step.bytes);
  }
  return out;
}

}  // namespace tokenmill::io
