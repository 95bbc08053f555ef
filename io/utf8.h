#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace tokenmill::io {

/// U+FEFF, which may stand at the front of a file and says nothing there.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// What stands at the front of a text.
struct Utf8Step {
  size_t bytes;  ///< length of the character, or of the invalid part that one U+FFFD replaces
  bool valid;
};

/// Looks at the first character of a non-empty text. Overlong forms, surrogates and values above U+10FFFF are invalid;
/// the invalid part is the longest one that could have begun a character (Unicode 15, section 3.9, "maximal subparts").
Utf8Step utf8_step(std::string_view text);

/// Offset of the first invalid byte sequence, npos when all of text is valid UTF-8.
size_t find_invalid_utf8(std::string_view text);

/// A name from a file, fit for a message: at most max_bytes of it, valid UTF-8, control characters as \xNN.
std::string excerpt(std::string_view text, size_t max_bytes = 120);

}  // namespace tokenmill::io
