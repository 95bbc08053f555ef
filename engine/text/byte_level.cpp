#include "engine/text/byte_level.h"

#include "engine/text/unicode.h"

namespace tokenmill::text {
namespace {

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, 0x144> bytes{};  // code point -> byte, -1 outside the alphabet

  Alphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t code = itself ? byte : next++;
      append_utf8(characters[byte], code);
      bytes[code] = static_cast<int>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

const std::array<std::string, 256>& byte_characters() { return alphabet().characters; }

std::optional<std::string> bytes_of_characters(std::string_view token) {
  const auto& bytes = alphabet().bytes;
  std::string out;
  while (!token.empty()) {
    const Character c = first_character(token);
    if (c.code >= bytes.size() || bytes[c.code] < 0) return std::nullopt;
    out += static_cast<char>(bytes[c.code]);
    token.remove_prefix(c.bytes);
  }
  return out;
}

}  // namespace tokenmill::text
