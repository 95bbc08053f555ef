// "..." % values and "...".format(...): Python's two ways of formatting.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "engine/text/jinja_runtime.h"
#include "engine/text/jinja_unicode.h"

namespace tokenmill::jinja {
namespace {

constexpr int64_t kMaxWidth = 100000;

std::string pad(Runtime& runtime, const std::string& text, int64_t width, char alignment, const std::string& fill) {
  const int64_t missing = width - count_code_points(text);
  if (missing <= 0) return text;
  runtime.charge_bytes(static_cast<size_t>(missing) * fill.size());
  const int64_t left = alignment == '<' ? 0 : (alignment == '^' ? missing / 2 : missing);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

std::string digits_of(uint64_t value, int base, bool upper) {
  char buffer[80];
  const auto [end, code] = std::to_chars(buffer, buffer + sizeof buffer, value, base);
  std::string out(buffer, end);
  return upper ? to_upper(out) : out;
}

uint64_t magnitude(int64_t value) { return value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value); }

// The digits of |value| for a float conversion e, f or g; "#" keeps the point.
std::string float_digits(double value, char type, int64_t precision, bool alternate) {
  const double positive = std::fabs(value);
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  if (std::isnan(value)) return upper ? "NAN" : "nan";
  if (std::isinf(value)) return upper ? "INF" : "inf";
  const int digits = static_cast<int>(precision);
  std::string out;
  switch (type) {
    case 'e':
      out = alternate ? fmt::format("{:#.{}e}", positive, digits) : fmt::format("{:.{}e}", positive, digits);
      break;
    case 'E':
      out = alternate ? fmt::format("{:#.{}E}", positive, digits) : fmt::format("{:.{}E}", positive, digits);
      break;
    case 'g':
      out = alternate ? fmt::format("{:#.{}g}", positive, digits) : fmt::format("{:.{}g}", positive, digits);
      break;
    case 'G':
      out = alternate ? fmt::format("{:#.{}G}", positive, digits) : fmt::format("{:.{}G}", positive, digits);
      break;
    default:
      out = alternate ? fmt::format("{:#.{}f}", positive, digits) : fmt::format("{:.{}f}", positive, digits);
  }
  return out;
}

// One conversion of a % format: flags, width, precision, type.
struct Conversion {
  bool left = false, zero = false, plus = false, space = false, alternate = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 's';
};

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const std::string& format, const Value& arguments)
      : runtime_(runtime), format_(format), arguments_(arguments) {}

  std::string run() {
    std::string out;
    while (at_ < format_.size()) {
      if (format_[at_] != '%') {
        out += format_[at_++];
        continue;
      }
      ++at_;
      out += conversion();
      runtime_.charge(1);
    }
    const bool all_used = arguments_.is(ValueKind::kTuple) ? next_ == arguments_.items().size() : next_ == 1;
    if (!all_used && !arguments_.is_dict() && !is_list_like())
      throw RenderError("not all arguments converted during string formatting");
    return out;
  }

 private:
  bool is_list_like() const { return next_ == 0 && (arguments_.is(ValueKind::kList) || arguments_.is(ValueKind::kRange)); }

  char peek() const {
    if (at_ >= format_.size()) throw RenderError("incomplete format");
    return format_[at_];
  }

  const Value& next_argument() {
    if (!arguments_.is(ValueKind::kTuple)) {
      if (next_++ > 0) throw RenderError("not enough arguments for format string");
      return arguments_;
    }
    if (next_ >= arguments_.items().size()) throw RenderError("not enough arguments for format string");
    return arguments_.items()[next_++];
  }

  int64_t number() {
    if (peek() == '*') {
      ++at_;
      const Value& value = next_argument();
      if (!value.is_integral()) throw RenderError("* wants int");
      return std::clamp(value.as_int(), -kMaxWidth, kMaxWidth);
    }
    int64_t value = 0;
    while (peek() >= '0' && peek() <= '9') value = std::min(value * 10 + (format_[at_++] - '0'), kMaxWidth);
    return value;
  }

  const Value* mapped_argument() {
    const size_t begin = ++at_;
    int depth = 1;
    while (depth > 0) {
      const char c = peek();
      depth += (c == '(') - (c == ')');
      ++at_;
    }
    if (!arguments_.is_dict()) throw RenderError("format requires a mapping");
    const std::string key = format_.substr(begin, at_ - begin - 1);
    const Value* value = arguments_.get<DictObject>().find(std::string_view(key));
    if (value == nullptr) throw RenderError(fmt::format("format has no value for key {}", repr_of_string(key)));
    return value;
  }

  std::string conversion() {
    const Value* mapped = peek() == '(' ? mapped_argument() : nullptr;
    Conversion spec;
    for (;; ++at_) {
      const char c = peek();
      if (c == '-')
        spec.left = true;
      else if (c == '0')
        spec.zero = true;
      else if (c == '+')
        spec.plus = true;
      else if (c == ' ')
        spec.space = true;
      else if (c == '#')
        spec.alternate = true;
      else
        break;
    }
    spec.width = number();
    if (spec.width < 0) {
      spec.left = true;
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(number(), 0);
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
    spec.type = format_[at_++];
    if (spec.type == '%') return "%";
    return convert(spec, mapped != nullptr ? *mapped : next_argument());
  }

  std::string convert(const Conversion& spec, const Value& value) {
    std::string sign;
    std::string body;
    bool numeric = true;
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a':
        body = spec.type == 's' ? to_text(runtime_, value) : to_repr(runtime_, value);
        if (spec.precision >= 0 && spec.precision < count_code_points(body))
          body.resize(byte_offset(body, spec.precision));
        numeric = false;
        break;
      case 'c':
        body = character(value);
        numeric = false;
        break;
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        body = integer(spec, value, sign);
        break;
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        const double real = real_of(value);
        if (std::signbit(real) && !std::isnan(real)) sign = "-";
        int64_t precision = spec.precision < 0 ? 6 : std::min<int64_t>(spec.precision, 1000);
        if ((spec.type == 'g' || spec.type == 'G') && precision == 0) precision = 1;
        body = float_digits(real, spec.type, precision, spec.alternate);
        break;
      }
      default:
        throw RenderError(fmt::format("unsupported format character '{}'", spec.type));
    }
    if (numeric && sign.empty()) sign = spec.plus ? "+" : (spec.space ? " " : "");
    return finish(spec, numeric, sign, body);
  }

  std::string finish(const Conversion& spec, bool numeric, const std::string& sign, std::string body) {
    std::string prefix;
    if (spec.alternate && numeric && (spec.type == 'x' || spec.type == 'X' || spec.type == 'o'))
      prefix = std::string("0") + spec.type;
    if (numeric && spec.zero && !spec.left) {
      const int64_t room = spec.width - static_cast<int64_t>(sign.size() + prefix.size());
      body = pad(runtime_, body, room, '>', "0");
    }
    return pad(runtime_, sign + prefix + body, spec.width, spec.left ? '<' : '>', " ");
  }

  static std::string character(const Value& value) {
    if (value.is_string() && value.length() == 1) return value.text();
    if (!value.is_integral()) throw RenderError("%c requires int or char");
    const int64_t code = value.as_int();
    if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) throw RenderError("%c arg not in range(0x110000)");
    std::string out;
    append_code_point(out, static_cast<char32_t>(code));
    return out;
  }

  std::string integer(const Conversion& spec, const Value& value, std::string& sign) const {
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    int64_t number = 0;
    if (value.is_integral()) {
      number = value.as_int();
    } else if (decimal && value.is(ValueKind::kFloat) && std::fabs(value.as_double()) < 9.2e18) {
      number = static_cast<int64_t>(value.as_double());
    } else {
      if (value.is_undefined()) throw RenderError(value.undefined_message());
      throw RenderError(fmt::format("%{} format: a number is required, not {}", spec.type, value.type_name()));
    }
    if (number < 0) sign = "-";
    const int base = decimal ? 10 : (spec.type == 'o' ? 8 : 16);
    std::string body = digits_of(magnitude(number), base, spec.type == 'X');
    if (spec.precision > static_cast<int64_t>(body.size()))
      body.insert(0, static_cast<size_t>(spec.precision) - body.size(), '0');
    return body;
  }

  static double real_of(const Value& value) {
    if (value.is_number()) return value.as_double();
    if (value.is_undefined()) throw RenderError(value.undefined_message());
    throw RenderError(fmt::format("must be real number, not {}", value.type_name()));
  }

  Runtime& runtime_;
  const std::string& format_;
  const Value& arguments_;
  size_t at_ = 0;
  size_t next_ = 0;
};

}  // namespace

std::string percent_format(Runtime& runtime, const std::string& format, const Value& arguments) {
  runtime.charge_bytes(format.size());
  return PercentFormatter(runtime, format, arguments).run();
}

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

int64_t spec_number(const std::string& text, size_t& at) {
  int64_t value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9')
    value = std::min(value * 10 + (text[at++] - '0'), kMaxWidth);
  return value;
}

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
  spec.width = spec_number(text, at);
  spec.grouping = skip(",_");
  if (skip(".") != '\0') {
    if (at >= text.size() || text[at] < '0' || text[at] > '9') throw RenderError("Format specifier missing precision");
    spec.precision = spec_number(text, at);
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
  const int64_t precision = std::min<int64_t>(spec.precision, 1000);
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
    throw RenderError(
        fmt::format("Unknown format code '{}' for object of type '{}'", spec.type, value.type_name()));
  throw RenderError(fmt::format("unsupported format string passed to {}.__format__", value.type_name()));
}

}  // namespace tokenmill::jinja
