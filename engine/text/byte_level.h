#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// GPT-2's way to write any byte as a printable character: '!'..'~', U+00A1..U+00AC and U+00AE..U+00FF stand for
/// themselves, the other 68 bytes are U+0100 onwards in ascending order.
namespace tokenmill::text {

/// The character for each byte, in UTF-8.
const std::array<std::string, 256>& byte_characters();
/// The bytes that a vocabulary entry stands for; nullopt when it holds a character outside the alphabet.
std::optional<std::string> bytes_of_characters(std::string_view token);

}  // namespace tokenmill::text
