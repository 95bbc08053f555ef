#include "engine/text/jinja_unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <span>

#include "engine/text/jinja_case_table.h"

namespace tokenmill::jinja {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

struct Range {
  char32_t first, last;
};

// What a class holds beyond a general category.
bool in_ranges(std::span<const Range> ranges, char32_t c) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [c](const Range& range) { return c >= range.first && c <= range.last; });
}

const LongCase* long_case(char32_t c) {
  const auto* found = std::lower_bound(std::begin(kLongCases), std::end(kLongCases), c,
                                       [](const LongCase& row, char32_t value) { return row.code_point < value; });
  return found != std::end(kLongCases) && found->code_point == c ? found : nullptr;
}

void append_upper(std::string& out, char32_t c) {
  if (const LongCase* row = long_case(c))
    out += row->upper;
  else
    append_code_point(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_title(std::string& out, char32_t c) {
  if (const LongCase* row = long_case(c))
    out += row->title;
  else
    append_code_point(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

// Characters that case rules look through (Unicode's Case_Ignorable).
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xb7 || c == 0x387 || c == 0x2018 || c == 0x2019 ||
             c == 0x2024 || c == 0x2027;
  }
}

// Capital sigma ends a word: a cased letter before it and none after it, looking through ignorable characters.
bool is_final_sigma(std::string_view text, size_t begin, size_t end) {
  bool before = false;
  for (size_t at = 0; at < begin;) {
    const char32_t c = next_code_point(text, at);
    if (!is_case_ignorable(c)) before = is_cased(c);
  }
  if (!before) return false;
  while (end < text.size()) {
    const char32_t c = next_code_point(text, end);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, size_t begin, size_t end, char32_t c) {
  if (c == 0x130)
    out += "i\xcc\x87";
  else if (c == 0x3a3)
    append_code_point(out, is_final_sigma(text, begin, end) ? 0x3c2 : 0x3c3);
  else
    append_code_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

}  // namespace

int64_t count_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

char32_t next_code_point(std::string_view text, size_t& position) {
  const auto lead = static_cast<unsigned char>(text[position]);
  if (lead < 0x80) return static_cast<char32_t>(text[position++]);
  utf8proc_int32_t c = 0;
  const auto used = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + position,
                                     static_cast<utf8proc_ssize_t>(text.size() - position), &c);
  if (used <= 0) {
    ++position;
    return 0xfffd;
  }
  position += static_cast<size_t>(used);
  return static_cast<char32_t>(c);
}

void append_code_point(std::string& out, char32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

size_t byte_offset(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at)
    if ((static_cast<unsigned char>(text[at]) & 0xc0) != 0x80 && index-- == 0) return at;
  return at;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x9 && c <= 0xd) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_alpha(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) {
  constexpr Range kOthers[] = {{0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
                               {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                               {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
                               {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
                               {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a}};
  return is_decimal(c) || in_ranges(kOthers, c);
}

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) {
  constexpr Range kOthers[] = {
      {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
  return category(c) == UTF8PROC_CATEGORY_LU || in_ranges(kOthers, c);
}

bool is_lower(char32_t c) {
  constexpr Range kOthers[] = {{0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},     {0x2c0, 0x2c1},
                               {0x2e0, 0x2e4},     {0x345, 0x345},     {0x37a, 0x37a},     {0x1d2c, 0x1d6a},
                               {0x1d78, 0x1d78},   {0x1d9b, 0x1dbf},   {0x2071, 0x2071},   {0x207f, 0x207f},
                               {0x2090, 0x209c},   {0x2170, 0x217f},   {0x24d0, 0x24e9},   {0x2c7c, 0x2c7d},
                               {0xa69c, 0xa69d},   {0xa770, 0xa770},   {0xa7f8, 0xa7f9},   {0xab5c, 0xab5f},
                               {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}};
  return category(c) == UTF8PROC_CATEGORY_LL || in_ranges(kOthers, c);
}

bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

bool is_printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

bool is_word(char32_t c) { return c == '_' || is_alpha(c) || is_numeric(c); }

bool is_identifier(std::string_view text) {
  if (text.empty()) return false;
  for (size_t at = 0; at < text.size();) {
    const bool first = at == 0;
    const char32_t c = next_code_point(text, at);
    const auto kind = category(c);
    const bool start = c == '_' || is_alpha(c) || kind == UTF8PROC_CATEGORY_NL;
    const bool inside = kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC || kind == UTF8PROC_CATEGORY_ND ||
                        kind == UTF8PROC_CATEGORY_PC;
    if (!start && (first || !inside)) return false;
  }
  return true;
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) append_upper(out, next_code_point(text, at));
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    append_lower(out, text, begin, at, c);
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    if (in_word)
      append_lower(out, text, begin, at, c);
    else
      append_title(out, c);
    in_word = is_cased(c);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    if (begin == 0)
      append_title(out, c);
    else
      append_lower(out, text, begin, at, c);
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    if (is_upper(c))
      append_lower(out, text, begin, at, c);
    else if (is_lower(c))
      append_upper(out, c);
    else
      append_code_point(out, c);
  }
  return out;
}

std::string case_fold(std::string_view text) {
  utf8proc_uint8_t* folded = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &folded, static_cast<utf8proc_option_t>(UTF8PROC_CASEFOLD));
  if (size < 0) return std::string(text);
  std::string out(reinterpret_cast<const char*>(folded), static_cast<size_t>(size));
  std::free(folded);
  return out;
}

namespace {

template <typename Matches>
std::string_view strip_if(std::string_view text, bool left, bool right, const Matches& matches) {
  size_t begin = 0;
  while (left && begin < text.size()) {
    size_t next = begin;
    if (!matches(next_code_point(text, next))) break;
    begin = next;
  }
  size_t end = text.size();
  while (right && end > begin) {
    size_t start = end - 1;
    while (start > begin && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
    size_t at = start;
    if (!matches(next_code_point(text, at))) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

}  // namespace

std::string_view strip_space(std::string_view text, bool left, bool right) {
  return strip_if(text, left, right, is_space);
}

std::string_view strip_characters(std::string_view text, std::string_view characters, bool left, bool right) {
  return strip_if(text, left, right, [&](char32_t c) {
    for (size_t at = 0; at < characters.size();)
      if (next_code_point(characters, at) == c) return true;
    return false;
  });
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t rfind_text(std::string_view text, std::string_view needle) {
  if (needle.empty()) return text.size();
  if (needle.size() > text.size()) return std::string_view::npos;
  const std::string backwards(text.rbegin(), text.rend());
  const std::string pattern(needle.rbegin(), needle.rend());
  const size_t found = find_text(backwards, pattern);
  return found == std::string_view::npos ? found : text.size() - found - needle.size();
}

}  // namespace tokenmill::jinja
