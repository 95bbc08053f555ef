// How values print: str(), repr() and json.dumps() of Python.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/text/jinja_loop.h"
#include "engine/text/jinja_runtime.h"
#include "engine/text/jinja_unicode.h"

namespace tokenmill::jinja {

std::string repr_of_double(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto [end, code] = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string text(buffer, end);  // [-]d[.ddd]e[+-]dd, shortest digits that read back
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  const std::string sign = text[0] == '-' ? "-" : "";
  std::string digits;
  for (const char c : text.substr(0, e))
    if (c >= '0' && c <= '9') digits += c;
  if (exponent < -4 || exponent >= 16) {
    std::string mantissa = digits.substr(0, 1);
    if (digits.size() > 1) mantissa += "." + digits.substr(1);
    return fmt::format("{}{}e{}{:02}", sign, mantissa, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string repr_of_string(std::string_view text) {
  const bool single = text.find('\'') == std::string_view::npos || text.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out.append(text.substr(begin, at - begin));
    } else {
      const auto number = static_cast<uint32_t>(c);
      out += c < 0x100 ? fmt::format("\\x{:02x}", number)
                       : (c < 0x10000 ? fmt::format("\\u{:04x}", number) : fmt::format("\\U{:08x}", number));
    }
  }
  return out + quote;
}

namespace {

void append_repr(Runtime& runtime, std::string& out, const Value& value, int depth);

void append_joined(Runtime& runtime, std::string& out, const std::vector<Value>& items, int depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(runtime, out, items[i], depth);
  }
}

void append_dict(Runtime& runtime, std::string& out, const DictObject& dict, int depth) {
  out += '{';
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(runtime, out, dict.entries[i].first, depth);
    out += ": ";
    append_repr(runtime, out, dict.entries[i].second, depth);
  }
  out += '}';
}

void append_namespace(Runtime& runtime, std::string& out, const NamespaceObject& space, int depth) {
  out += "<Namespace {";
  for (size_t i = 0; i < space.attributes.size(); ++i) {
    if (i > 0) out += ", ";
    out += repr_of_string(space.attributes[i].first) + ": ";
    append_repr(runtime, out, space.attributes[i].second, depth);
  }
  out += "}>";
}

// depth counts levels through namespaces too, which Value::depth does not.
void append_repr(Runtime& runtime, std::string& out, const Value& value, int depth) {
  if (depth > 2 * kMaxValueDepth) throw RenderError("a value is nested too deeply to print");
  const size_t before = out.size();
  switch (value.kind()) {
    case ValueKind::kUndefined:
      out += "Undefined";
      break;
    case ValueKind::kString:
      out += repr_of_string(value.text());
      break;
    case ValueKind::kList:
      out += '[';
      append_joined(runtime, out, value.items(), depth + 1);
      out += ']';
      break;
    case ValueKind::kTuple:
      out += '(';
      append_joined(runtime, out, value.items(), depth + 1);
      out += value.items().size() == 1 ? ",)" : ")";
      break;
    case ValueKind::kRange:
      out += value.get<SequenceObject>().label;
      break;
    case ValueKind::kDictKeys:
    case ValueKind::kDictValues:
    case ValueKind::kDictItems:
      out += fmt::format("{}([", value.type_name());
      append_joined(runtime, out, value.items(), depth + 1);
      out += "])";
      break;
    case ValueKind::kDict:
      append_dict(runtime, out, value.get<DictObject>(), depth + 1);
      break;
    case ValueKind::kNamespace:
      append_namespace(runtime, out, value.get<NamespaceObject>(), depth + 1);
      break;
    default:
      out += to_text(runtime, value);
  }
  runtime.charge_bytes(out.size() - before);
}

}  // namespace

std::string to_repr(Runtime& runtime, const Value& value) {
  std::string out;
  append_repr(runtime, out, value, 0);
  return out;
}

std::string to_text(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case ValueKind::kUndefined:
      return "";
    case ValueKind::kNone:
      return "None";
    case ValueKind::kBool:
      return value.as_bool() ? "True" : "False";
    case ValueKind::kInt:
      return fmt::format("{}", value.as_int());
    case ValueKind::kFloat:
      return repr_of_double(value.as_double());
    case ValueKind::kString:
    case ValueKind::kBigInt:
      runtime.charge_bytes(value.text().size());
      return value.text();
    case ValueKind::kCallable:
      if (value.get<CallableObject>().is_macro) return fmt::format("<Macro '{}'>", value.get<CallableObject>().name);
      throw RenderError(fmt::format("a function ({}) has no text; call it", value.get<CallableObject>().name));
    case ValueKind::kGenerator:
      throw RenderError("the result of a lazy filter (map, select, ...) has no text; add | list");
    case ValueKind::kLoop:
      return fmt::format("<LoopContext {}/{}>", value.get<LoopObject>().index0 + 1,
                         value.get<LoopObject>().get_length(runtime));
    case ValueKind::kCycler:
      throw RenderError("a cycler has no text");
    default:
      return to_repr(runtime, value);
  }
}

namespace {

void append_json_text(std::string& out, std::string_view text, bool ensure_ascii) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    const auto number = static_cast<uint32_t>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20) {
      constexpr std::string_view kShort = "\b\f\n\r\t";
      const size_t found = kShort.find(static_cast<char>(c));
      out += found == std::string_view::npos ? fmt::format("\\u{:04x}", number) : std::string("\\") + "bfnrt"[found];
    } else if (!ensure_ascii || c < 0x80) {
      out.append(text.substr(begin, at - begin));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", number);
    } else {
      out +=
          fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((number - 0x10000) >> 10), 0xdc00 + ((number - 0x10000) & 0x3ff));
    }
  }
  out += '"';
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  void write(const Value& value, int level) {
    const size_t before = out.size();
    switch (value.kind()) {
      case ValueKind::kNone:
        out += "null";
        break;
      case ValueKind::kBool:
        out += value.as_bool() ? "true" : "false";
        break;
      case ValueKind::kInt:
      case ValueKind::kBigInt:
        out += to_text(runtime_, value);
        break;
      case ValueKind::kFloat:
        out += number(value.as_double());
        break;
      case ValueKind::kString:
        append_json_text(out, value.text(), style_.ensure_ascii);
        break;
      case ValueKind::kList:
      case ValueKind::kTuple:
        write_list(value.items(), level);
        break;
      case ValueKind::kDict:
        write_dict(value.get<DictObject>(), level);
        break;
      default:
        throw RenderError(fmt::format("Object of type {} is not JSON serializable{}", value.type_name(),
                                      value.is_undefined() ? ": " + value.undefined_message() : ""));
    }
    runtime_.charge_bytes(out.size() - before);
  }

  std::string out;

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return repr_of_double(value);
  }

  void new_line(int level) {
    if (!style_.indented) return;
    runtime_.charge_bytes(static_cast<size_t>(level) * style_.indent.size());
    out += '\n';
    for (int i = 0; i < level; ++i) out += style_.indent;
  }

  void write_list(const std::vector<Value>& items, int level) {
    if (items.empty()) {
      out += "[]";
      return;
    }
    out += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      new_line(level + 1);
      write(items[i], level + 1);
    }
    new_line(level);
    out += ']';
  }

  std::string key_text(const Value& key) {
    switch (key.kind()) {
      case ValueKind::kString:
        return key.text();
      case ValueKind::kNone:
        return "null";
      case ValueKind::kBool:
        return key.as_bool() ? "true" : "false";
      case ValueKind::kFloat:
        return number(key.as_double());
      case ValueKind::kInt:
      case ValueKind::kBigInt:
        return to_text(runtime_, key);
      default:
        throw RenderError(fmt::format("keys must be str, int, float, bool or None, not {}", key.type_name()));
    }
  }

  void write_dict(const DictObject& dict, int level) {
    if (dict.entries.empty()) {
      out += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return compare(runtime_, a->first, b->first, "<") == -1; });
    out += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      new_line(level + 1);
      append_json_text(out, key_text(entries[i]->first), style_.ensure_ascii);
      out += style_.key_separator;
      write(entries[i]->second, level + 1);
    }
    new_line(level);
    out += '}';
  }

  Runtime& runtime_;
  const JsonStyle& style_;
};

}  // namespace

std::string dump_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  writer.write(value, 0);
  return std::move(writer.out);
}

}  // namespace tokenmill::jinja
