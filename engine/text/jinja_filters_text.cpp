// Filters on strings and numbers, and tojson.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "engine/text/jinja_filters.h"
#include "engine/text/jinja_number.h"
#include "engine/text/jinja_unicode.h"

namespace tokenmill::jinja {

FilterFunction find_filter(std::string_view name) {
  for (const auto entries : {text_filters(), sequence_filters(), select_filters()})
    for (const FilterEntry& entry : entries)
      if (entry.name == name) return entry.function;
  return nullptr;
}

InputText::InputText(Runtime& runtime, const Value& value) : hold_(value) {
  if (!value.is_string()) hold_ = runtime.string(to_text(runtime, value));
  runtime.charge_bytes(hold_.text().size());
  view = hold_.text();
}

namespace {

Value filter_tojson(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.flag(0, false);
  style.sort_keys = bound.flag(3, false);
  if (bound.has(1)) {
    style.indented = true;
    style.item_separator = ",";
    if (bound[1]->is_string()) {
      style.indent = bound[1]->text();
    } else {
      const int64_t width = std::max<int64_t>(bound.integer(1, 0), 0);
      if (width > 1000) throw RenderError("tojson(): indent is larger than 1000");
      style.indent.assign(static_cast<size_t>(width), ' ');
    }
  }
  if (bound.has(2)) {
    const std::vector<Value> separators = to_vector(runtime, *bound[2]);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string())
      throw RenderError("tojson(): separators must be two strings");
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  return runtime.string(dump_json(runtime, input, style));
}

template <std::string (*transform)(std::string_view)>
Value filter_case(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "filter", {});
  return runtime.string(transform(InputText(runtime, input).view));
}

// Jinja's title: words begin behind white space and - ( { [ <.
Value filter_title(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "title", {});
  const InputText text(runtime, input);
  constexpr std::string_view kBreaks = "-({[<";
  std::string out;
  size_t begin = 0;
  while (begin < text.view.size()) {
    size_t end = begin;
    while (end < text.view.size()) {
      size_t next = end;
      const char32_t c = next_code_point(text.view, next);
      if (is_space(c) || (c < 0x80 && kBreaks.find(static_cast<char>(c)) != std::string_view::npos)) break;
      end = next;
    }
    if (end > begin) {
      size_t first = begin;
      next_code_point(text.view, first);
      out += to_upper(text.view.substr(begin, first - begin));
      out += to_lower(text.view.substr(first, end - first));
    }
    begin = end;
    if (begin < text.view.size()) {
      next_code_point(text.view, end);
      out.append(text.view.substr(begin, end - begin));
      begin = end;
    }
  }
  return runtime.string(std::move(out));
}

Value filter_trim(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "trim", {"chars"});
  const InputText text(runtime, input);
  if (bound.has(0)) {
    runtime.charge_bytes(text.view.size() * bound.text(0).size());
    return runtime.string(std::string(strip_characters(text.view, bound.text(0), true, true)));
  }
  return runtime.string(std::string(strip_space(text.view, true, true)));
}

Value filter_replace(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "replace", {"old", "new", "count"}, 2);
  Arguments inner;
  inner.positional = {runtime.string(to_text(runtime, *bound[0])), runtime.string(to_text(runtime, *bound[1])),
                      Value::integer(bound.has(2) ? bound.integer(2, -1) : -1)};
  const Value text = input.is_string() ? input : runtime.string(to_text(runtime, input));
  const Value method = find_string_method(runtime, text, "replace");
  return call_value(runtime, method, inner);
}

Value filter_string(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "string", {});
  return input.is_string() ? input : runtime.string(to_text(runtime, input));
}

Value filter_safe(Runtime& runtime, const Value& input, const Arguments& arguments) {
  return filter_string(runtime, input, arguments);
}

Value filter_escape(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "escape", {});
  const InputText text(runtime, input);
  std::string out;
  for (const char c : text.view) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return runtime.string(std::move(out));
}

std::string percent_encode(std::string_view text, bool query) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                       c == '.' || c == '-' || c == '~' || (c == '/' && !query);
    if (plain)
      out += c;
    else if (c == ' ' && query)
      out += '+';
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Value filter_urlencode(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "urlencode", {});
  if (input.is_string() || !is_iterable(input))
    return runtime.string(percent_encode(InputText(runtime, input).view, false));
  const auto part = [&](const Value& value) { return percent_encode(InputText(runtime, value).view, true); };
  std::string out;
  const auto add = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    out += part(key) + "=" + part(value);
  };
  if (input.is_dict()) {
    for (const auto& [key, value] : input.get<DictObject>().entries) add(key, value);
    return runtime.string(std::move(out));
  }
  for (const Value& pair : to_vector(runtime, input)) {
    const std::vector<Value> both = to_vector(runtime, pair);
    if (both.size() != 2) throw RenderError("urlencode(): a list must hold (key, value) pairs");
    add(both[0], both[1]);
  }
  return runtime.string(std::move(out));
}

Value filter_indent(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "indent", {"width", "first", "blank"});
  if (input.is_undefined()) throw RenderError(input.undefined_message());
  if (!input.is_string()) throw RenderError(fmt::format("indent() needs a string, not {}", input.type_name()));
  const bool blank = bound.flag(2, false);
  std::string pad;
  if (bound[0] != nullptr && bound[0]->is_string()) {
    pad = bound[0]->text();
  } else {
    const int64_t width = std::max<int64_t>(bound.integer(0, 4), 0);
    runtime.charge_bytes(static_cast<size_t>(width));
    pad.assign(static_cast<size_t>(width), ' ');
  }
  Arguments none;
  const Value text = runtime.string(input.text() + "\n");
  const Value lines = call_value(runtime, find_string_method(runtime, text, "splitlines"), none);
  std::string out;
  bool first_line = true;
  for (const Value& line : lines.items()) {
    runtime.charge_bytes(pad.size() + line.text().size());
    if (!first_line) out += '\n';
    if (first_line ? bound.flag(1, false) : (blank || !line.text().empty())) out += pad;
    out += line.text();
    first_line = false;
  }
  return runtime.string(std::move(out));
}

Value filter_center(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "center", {"width"});
  Arguments inner;
  inner.positional = {Value::integer(bound.integer(0, 80))};
  const Value text = runtime.string(std::string(InputText(runtime, input).view));
  return call_value(runtime, find_string_method(runtime, text, "center"), inner);
}

Value filter_wordcount(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "wordcount", {});
  const InputText text(runtime, input);
  int64_t count = 0;
  bool inside = false;
  for (size_t at = 0; at < text.view.size();) {
    const bool word = is_word(next_code_point(text.view, at));
    if (word && !inside) ++count;
    inside = word;
  }
  return Value::integer(count);
}

Value filter_truncate(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "truncate", {"length", "killwords", "end", "leeway"});
  if (!input.is_string()) throw RenderError(fmt::format("truncate() needs a string, not {}", input.type_name()));
  const std::string end = bound[2] == nullptr ? "..." : bound.text(2);
  const int64_t length = bound.integer(0, 255);
  const int64_t leeway = bound.has(3) ? bound.integer(3, 5) : 5;
  const int64_t keep = length - count_code_points(end);
  if (keep < 0 || leeway < 0) throw RenderError("truncate(): length must cover the end text, leeway be at least 0");
  if (input.length() <= length + leeway) return input;
  std::string text = input.text().substr(0, byte_offset(input.text(), keep));
  if (!bound.flag(1, false)) {
    const size_t space = text.rfind(' ');
    if (space != std::string::npos) text.resize(space);
  }
  return runtime.string(text + end);
}

Value filter_format(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    throw RenderError("format(): positional and keyword arguments cannot be mixed");
  const InputText text(runtime, input);
  if (arguments.named.empty())
    return runtime.string(percent_format(runtime, std::string(text.view), runtime.tuple(arguments.positional)));
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : arguments.named) entries.emplace_back(runtime.string(name), value);
  return runtime.string(percent_format(runtime, std::string(text.view), runtime.dict(std::move(entries))));
}

Value filter_int(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "int", {"default", "base"});
  if (input.is_undefined()) throw RenderError(input.undefined_message());
  if (input.is(ValueKind::kBigInt)) return input;
  if (input.is_integral()) return Value::integer(input.as_int());
  const Value otherwise = bound[0] == nullptr ? Value::integer(0) : *bound[0];
  std::optional<double> real;
  if (input.is_string()) {
    const int64_t base = bound.integer(1, 10);
    if (const auto whole = parse_integer(input.text(), base)) return Value::integer(*whole);
    real = parse_real(input.text());
    if (real && std::isinf(*real)) real.reset();
  } else if (input.is(ValueKind::kFloat)) {
    real = input.as_double();
    if (std::isinf(*real)) throw RenderError("cannot convert float infinity to integer");
  }
  if (!real || std::isnan(*real)) return otherwise;
  if (std::fabs(*real) >= 9.2e18) throw RenderError("integer overflow (integers here have 64 bits)");
  runtime.charge(1);
  return Value::integer(static_cast<int64_t>(*real));
}

Value filter_float(Runtime&, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "float", {"default"});
  if (input.is_undefined()) throw RenderError(input.undefined_message());
  if (input.is_number()) return Value::real(input.as_double());
  if (input.is_string() || input.is(ValueKind::kBigInt))
    if (const auto real = parse_real(input.text())) return Value::real(*real);
  return bound[0] == nullptr ? Value::real(0) : *bound[0];
}

Value filter_abs(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "abs", {});
  if (input.is(ValueKind::kFloat)) return Value::real(std::fabs(input.as_double()));
  if (input.is_integral() && input.as_int() >= 0) return Value::integer(input.as_int());
  if (input.is_integral()) return apply_negative(runtime, input);
  if (input.is_undefined()) throw RenderError(input.undefined_message());
  throw RenderError(fmt::format("bad operand type for abs(): '{}'", input.type_name()));
}

Value filter_round(Runtime&, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "round", {"precision", "method"});
  const int64_t precision = bound.integer(0, 0);
  const std::string method = bound[1] == nullptr ? "common" : bound.text(1);
  if (method != "common" && method != "ceil" && method != "floor")
    throw RenderError("round(): method must be common, ceil or floor");
  if (input.is_undefined()) throw RenderError(input.undefined_message());
  if (!input.is_number()) throw RenderError(fmt::format("type {} doesn't define __round__ method", input.type_name()));
  if (precision < -300 || precision > 300) throw RenderError("round(): precision must be between -300 and 300");
  if (method == "common") return round_half_even(input, precision);
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.as_double() * scale;
  if (!std::isfinite(scaled)) throw RenderError("cannot convert float infinity or NaN to integer");
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

constexpr FilterEntry kFilters[] = {
    {"abs", filter_abs},
    {"capitalize", filter_case<capitalize>},
    {"center", filter_center},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"forceescape", filter_escape},
    {"float", filter_float},
    {"format", filter_format},
    {"indent", filter_indent},
    {"int", filter_int},
    {"lower", filter_case<to_lower>},
    {"replace", filter_replace},
    {"round", filter_round},
    {"safe", filter_safe},
    {"string", filter_string},
    {"title", filter_title},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"upper", filter_case<to_upper>},
    {"urlencode", filter_urlencode},
    {"wordcount", filter_wordcount},
};

}  // namespace

std::span<const FilterEntry> text_filters() { return kFilters; }

}  // namespace tokenmill::jinja
