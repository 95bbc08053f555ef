#pragma once
#include <cstdint>
#include <string>
#include <string_view>

/// Python's view of text on UTF-8 bytes: code points, white space, case. All text passed in is valid UTF-8; a stray
/// byte reads as U+FFFD. Character classes and case are those of Python (compared over all of Unicode 14), with
/// utf8proc's newer characters added.
namespace tokenmill::jinja {

int64_t count_code_points(std::string_view text);
/// The code point at `position` (< text.size()), which moves past it.
char32_t next_code_point(std::string_view text, size_t& position);
void append_code_point(std::string& out, char32_t code_point);
/// Byte offset of code point `index`, 0 <= index <= count_code_points(text).
size_t byte_offset(std::string_view text, int64_t index);

bool is_space(char32_t c);      // str.isspace, and \s of a Python regular expression
bool is_alpha(char32_t c);      // str.isalpha
bool is_decimal(char32_t c);    // str.isdecimal
bool is_digit(char32_t c);      // str.isdigit
bool is_numeric(char32_t c);    // str.isnumeric, without the CJK ideographs that are numbers
bool is_upper(char32_t c);      // a cased character in upper case
bool is_lower(char32_t c);      // a cased character in lower case
bool is_title(char32_t c);      // a title-case letter such as U+01C5
bool is_printable(char32_t c);  // repr() shows it as it is
bool is_word(char32_t c);       // \w of a Python regular expression
bool is_identifier(std::string_view text);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);  // str.title: every run of cased letters
std::string capitalize(std::string_view text);
std::string swap_case(std::string_view text);
std::string case_fold(std::string_view text);

/// Without white space at the chosen ends.
std::string_view strip_space(std::string_view text, bool left, bool right);
/// Without any of the code points of `characters` at the chosen ends.
std::string_view strip_characters(std::string_view text, std::string_view characters, bool left, bool right);

/// First position of needle at or after `from`; npos when absent. Linear time.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);
/// Last position of needle; npos when absent. Linear time.
size_t rfind_text(std::string_view text, std::string_view needle);

}  // namespace tokenmill::jinja
