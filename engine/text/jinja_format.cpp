// "..." % values.
#include "engine/text/jinja_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/text/jinja_unicode.h"

namespace tokenmill::jinja {

int64_t read_width(const std::string& text, size_t& at) {
  int64_t value = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    value = value * 10 + (text[at] - '0');
    if (value > kMaxWidth) throw RenderError(fmt::format("a width in a format is larger than {}", kMaxWidth));
  }
  return value;
}

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

uint64_t magnitude(int64_t value) {
  return value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
}

std::string float_digits(double value, char type, int64_t precision, bool alternate) {
  if (precision > kMaxPrecision)
    throw RenderError(fmt::format("a precision in a format is larger than {}", kMaxPrecision));
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

namespace {

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
  bool is_list_like() const {
    return next_ == 0 && (arguments_.is(ValueKind::kList) || arguments_.is(ValueKind::kRange));
  }

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
      if (value.as_int() > kMaxWidth || value.as_int() < -kMaxWidth) throw RenderError("width too big");
      return value.as_int();
    }
    return read_width(format_, at_);
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
    spec.type = peek();
    if (static_cast<unsigned char>(spec.type) >= 0x80) throw RenderError("unsupported format character");
    ++at_;
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
        int64_t precision = spec.precision < 0 ? 6 : spec.precision;
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
    if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
      throw RenderError("%c arg not in range(0x110000)");
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

}  // namespace tokenmill::jinja
