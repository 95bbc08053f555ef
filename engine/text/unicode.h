#pragma once
#include <cstddef>
#include <string>
#include <string_view>

/// Characters of valid UTF-8 text. Invalid text is mended once, at the door (replace_invalid_utf8).
namespace tokenmill::text {

struct Character {
  char32_t code;
  size_t bytes;  ///< length of its UTF-8 form
};

/// First character of a non-empty valid UTF-8 text.
Character first_character(std::string_view text);
/// Last character of a non-empty valid UTF-8 text.
Character last_character(std::string_view text);
/// Appends the UTF-8 form of a code point (not a surrogate, at most U+10FFFF).
void append_utf8(std::string& out, char32_t code);

/// U+FFFD in UTF-8: what stands for bytes that are no character.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";
/// Each maximal invalid part becomes one U+FFFD, as Python's errors="replace" does.
std::string replace_invalid_utf8(std::string_view text);

/// Unicode property White_Space (U+0085 and U+00A0 are in it, U+180E and U+200B are not).
bool is_white_space(char32_t code);
/// General category Nd, Nl or No.
bool is_numeric(char32_t code);
/// ASCII punctuation and symbols, or general category P*.
bool is_punctuation(char32_t code);
/// A character of a word: letter, mark, decimal digit, letter number, connector punctuation, circled letter, joiner.
bool is_word_character(char32_t code);
/// General category M*.
bool is_mark(char32_t code);
/// Appends the full lower case of one character ("\u0130" gives two).
void append_lowercase(std::string& out, char32_t code);

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };
/// Unicode normalization form of valid UTF-8 text.
std::string normalize(std::string_view text, UnicodeForm form);

}  // namespace tokenmill::text
