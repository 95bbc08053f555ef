#include "engine/text/jinja_number.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string>

#include "engine/text/jinja_unicode.h"

namespace tokenmill::jinja {
namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

// Removes single underscores between digits; false when one stands elsewhere.
bool drop_underscores(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const bool inside = i > 0 && i + 1 < text.size() && digit_of(text[i - 1]) < 36 && digit_of(text[i + 1]) < 36;
    if (!inside) return false;
  }
  return true;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  text = strip_space(text, true, true);
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const auto prefix = [&](char mark) { return text.size() > 1 && text[0] == '0' && (text[1] | 0x20) == mark; };
  const bool had_prefix = (prefix('x') && (base == 16 || base == 0)) || (prefix('o') && (base == 8 || base == 0)) ||
                          (prefix('b') && (base == 2 || base == 0));
  if (had_prefix) {
    base = prefix('x') ? 16 : (prefix('o') ? 8 : 2);
    text.remove_prefix(2);
    if (!text.empty() && text[0] == '_') text.remove_prefix(1);
  } else if (base == 0) {
    base = 10;
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
      return std::nullopt;
  }
  std::string digits;
  if (!drop_underscores(text, digits) || digits.empty()) return std::nullopt;
  for (const char c : digits)
    if (digit_of(c) >= base) return std::nullopt;
  if (negative) digits.insert(digits.begin(), '-');
  int64_t value = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (code != std::errc{} || end != digits.data() + digits.size())
    throw RenderError("integer overflow (integers here have 64 bits)");
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  text = strip_space(text, true, true);
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const std::string word = to_lower(text.substr(0, 16));
  if (word == "inf" || word == "infinity") return negative ? -HUGE_VAL : HUGE_VAL;
  if (word == "nan") return std::nan("");
  if (text.empty() || !((text[0] >= '0' && text[0] <= '9') || text[0] == '.')) return std::nullopt;
  std::string digits;
  if (!drop_underscores(text, digits)) return std::nullopt;
  double value = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size() || code == std::errc::invalid_argument) return std::nullopt;
  if (code == std::errc::result_out_of_range) {
    const size_t e = digits.find_first_of("eE");
    const bool tiny = e != std::string::npos && e + 1 < digits.size() && digits[e + 1] == '-';
    value = tiny ? 0.0 : HUGE_VAL;
  }
  return negative ? -value : value;
}

namespace {

Value round_integer(int64_t value, int64_t precision) {
  if (precision >= 0) return Value::integer(value);
  if (precision < -18) return Value::integer(0);
  int64_t unit = 1;
  for (int64_t i = 0; i < -precision; ++i) unit *= 10;
  int64_t quotient = value / unit;
  const int64_t rest = std::abs(value % unit);
  const bool up = rest > unit - rest || (rest == unit - rest && quotient % 2 != 0);
  if (up) quotient += value < 0 ? -1 : 1;
  int64_t result = 0;
  if (__builtin_mul_overflow(quotient, unit, &result))
    throw RenderError("integer overflow (integers here have 64 bits)");
  return Value::integer(result);
}

}  // namespace

Value round_half_even(const Value& value, int64_t precision) {
  if (value.is_integral()) return round_integer(value.as_int(), precision);
  const double number = value.as_double();
  if (!std::isfinite(number) || precision > 22 + 300) return value;
  if (precision >= 0) {
    const std::string text = fmt::format("{:.{}f}", number, precision);
    double rounded = 0;
    std::from_chars(text.data(), text.data() + text.size(), rounded);
    return Value::real(rounded);
  }
  // The exact integer part decides; .5 cannot decide a tie at tens and above unless the fraction is zero.
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  const double quotient = number / unit;
  double whole = std::floor(quotient);
  const double rest = number - whole * unit;
  if (rest > unit / 2 || (rest == unit / 2 && std::fmod(whole, 2.0) != 0)) whole += 1;
  return Value::real(std::copysign(whole * unit, number));
}

}  // namespace tokenmill::jinja
