// format(value, specification): what stands behind ":" in "...".format(...).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/text/jinja_format.h"
#include "engine/text/jinja_unicode.h"

namespace tokenmill::jinja {
namespace {

// [[fill]align][sign][#][0][width][grouping][.precision][type]
struct FormatSpec {
  std::string fill = " ";
  char alignment = '\0';
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  int64_t width = 0;
  char grouping = '\0';
  int64_t precision = -1;
  char type = '\0';
};

FormatSpec parse_spec(const std::string& text) {
  constexpr std::string_view kAlignments = "<>^=";
  FormatSpec spec;
  size_t at = 0;
  size_t second = 0;
  if (!text.empty()) next_code_point(text, second);
  if (second > 0 && second < text.size() && kAlignments.find(text[second]) != std::string_view::npos) {
    spec.fill = text.substr(0, second);
    spec.alignment = text[second];
    at = second + 1;
  } else if (!text.empty() && kAlignments.find(text[0]) != std::string_view::npos) {
    spec.alignment = text[at++];
  }
  const auto skip = [&](std::string_view set) {
    return at < text.size() && set.find(text[at]) != std::string_view::npos ? text[at++] : '\0';
  };
  if (const char sign = skip("+- ")) spec.sign = sign;
  spec.alternate = skip("#") != '\0';
  if (skip("0") != '\0') {
    spec.zero = true;
    if (spec.alignment == '\0') {
      spec.fill = "0";
      spec.alignment = '=';
    }
  }
  spec.width = read_width(text, at);
  spec.grouping = skip(",_");
  if (skip(".") != '\0') {
    if (at >= text.size() || text[at] < '0' || text[at] > '9') throw RenderError("Format specifier missing precision");
    spec.precision = read_width(text, at);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) throw RenderError("Invalid format specifier");
  return spec;
}

std::string grouped(const std::string& digits, char separator, size_t size) {
  if (separator == '\0') return digits;
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % size == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string format_number(Runtime& runtime, const FormatSpec& spec, bool negative, const std::string& prefix,
                          std::string body) {
  const std::string sign = negative ? "-" : (spec.sign == '-' ? "" : std::string(1, spec.sign));
  if (spec.alignment == '=') {
    const int64_t room = spec.width - static_cast<int64_t>(sign.size() + prefix.size());
    if (spec.grouping != '\0' && spec.fill == "0" && room > static_cast<int64_t>(body.size()))
      throw RenderError("zero padding together with digit grouping is not supported in format specifiers");
    return sign + prefix + pad(runtime, body, room, '>', spec.fill);
  }
  return pad(runtime, sign + prefix + body, spec.width, spec.alignment == '\0' ? '>' : spec.alignment, spec.fill);
}

std::string format_integer(Runtime& runtime, const FormatSpec& spec, int64_t value) {
  if (spec.precision >= 0) throw RenderError("Precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    std::string out;
    if (value < 0 || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
      throw RenderError("%c arg not in range(0x110000)");
    append_code_point(out, static_cast<char32_t>(value));
    return pad(runtime, out, spec.width, spec.alignment == '\0' ? '<' : spec.alignment, spec.fill);
  }
  const char type = spec.type == '\0' || spec.type == 'n' ? 'd' : spec.type;
  const int base = type == 'd' ? 10 : (type == 'b' ? 2 : (type == 'o' ? 8 : 16));
  std::string body = grouped(digits_of(magnitude(value), base, type == 'X'), spec.grouping, base == 10 ? 3 : 4);
  const std::string prefix = spec.alternate && base != 10 ? std::string("0") + type : "";
  return format_number(runtime, spec, value < 0, prefix, std::move(body));
}

std::string format_real(Runtime& runtime, const FormatSpec& spec, double value) {
  std::string body;
  const int64_t precision = spec.precision;
  if (spec.type == '\0' && precision < 0) {
    body = repr_of_double(std::fabs(value));
  } else if (spec.type == '%') {
    body = float_digits(value * 100, 'f', precision < 0 ? 6 : precision, spec.alternate) + "%";
  } else if (spec.type == '\0') {
    throw RenderError("a float format needs a type (e, f, g or %) with its precision");
  } else {
    const char type = spec.type == 'n' ? 'g' : spec.type;
    const bool general = type == 'g' || type == 'G';
    body = float_digits(value, type, precision < 0 ? 6 : (general ? std::max<int64_t>(precision, 1) : precision),
                        spec.alternate);
  }
  body = grouped(body, spec.grouping, 3);
  return format_number(runtime, spec, std::signbit(value) && !std::isnan(value), "", std::move(body));
}

}  // namespace

std::string format_value(Runtime& runtime, const Value& value, const std::string& specification) {
  if (specification.empty()) return to_text(runtime, value);
  const FormatSpec spec = parse_spec(specification);
  constexpr std::string_view kIntegerTypes = "bcdoxXn";
  constexpr std::string_view kFloatTypes = "eEfFgG%n";
  const bool integer_type = spec.type == '\0' || kIntegerTypes.find(spec.type) != std::string_view::npos;
  const bool float_type = spec.type == '\0' || kFloatTypes.find(spec.type) != std::string_view::npos;
  if (value.is_integral() && integer_type) return format_integer(runtime, spec, value.as_int());
  if (value.is_number() && float_type) return format_real(runtime, spec, value.as_double());
  if (value.is_string() && (spec.type == '\0' || spec.type == 's')) {
    if (spec.alignment == '=' && !spec.zero) throw RenderError("'=' alignment not allowed in string format specifier");
    if (spec.sign != '-' || spec.grouping != '\0' || spec.alternate)
      throw RenderError("Invalid format specifier for a string");
    std::string text = value.text();
    if (spec.precision >= 0 && spec.precision < value.length()) text.resize(byte_offset(text, spec.precision));
    const char alignment = spec.alignment == '\0' || spec.alignment == '=' ? '<' : spec.alignment;
    return pad(runtime, text, spec.width, alignment, spec.fill);
  }
  if (value.is_string() || value.is_number())
    throw RenderError(fmt::format("Unknown format code '{}' for object of type '{}'", spec.type, value.type_name()));
  throw RenderError(fmt::format("unsupported format string passed to {}.__format__", value.type_name()));
}

}  // namespace tokenmill::jinja
