// "...".format(...): replacement fields {name.attribute[item]!conversion:specification}.
#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "engine/text/jinja_runtime.h"

namespace tokenmill::jinja {
namespace {

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments) : runtime_(runtime), arguments_(arguments) {}

  std::string run(std::string_view format, int depth) {
    if (depth > 2) throw RenderError("Max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < format.size();) {
      const char c = format[at];
      if (c != '{' && c != '}') {
        out += c;
        ++at;
        continue;
      }
      if (at + 1 < format.size() && format[at + 1] == c) {
        out += c;
        at += 2;
        continue;
      }
      if (c == '}') throw RenderError("Single '}' encountered in format string");
      const size_t end = field_end(format, at + 1);
      out += field(format.substr(at + 1, end - at - 1), depth);
      at = end + 1;
      runtime_.charge_bytes(out.size() / 16);
    }
    return out;
  }

 private:
  static size_t field_end(std::string_view format, size_t at) {
    int open = 1;
    bool in_bracket = false;
    for (; at < format.size(); ++at) {
      if (format[at] == '[') in_bracket = true;
      if (format[at] == ']') in_bracket = false;
      if (in_bracket) continue;
      open += (format[at] == '{') - (format[at] == '}');
      if (open == 0) return at;
    }
    throw RenderError("expected '}' before end of string");
  }

  std::string field(std::string_view text, int depth) {
    size_t name_end = 0;
    bool in_bracket = false;
    while (name_end < text.size() && (in_bracket || (text[name_end] != '!' && text[name_end] != ':'))) {
      if (text[name_end] == '[') in_bracket = true;
      if (text[name_end] == ']') in_bracket = false;
      ++name_end;
    }
    const Value value = look_up(text.substr(0, name_end));
    char conversion = '\0';
    if (name_end < text.size() && text[name_end] == '!') {
      if (name_end + 1 >= text.size()) throw RenderError("end of string while looking for conversion specifier");
      conversion = text[name_end + 1];
      name_end += 2;
      if (name_end < text.size() && text[name_end] != ':') throw RenderError("expected ':' after conversion specifier");
    }
    const std::string specification = name_end < text.size() ? run(text.substr(name_end + 1), depth + 1) : "";
    if (conversion == '\0') return format_value(runtime_, value, specification);
    if (conversion != 's' && conversion != 'r')
      throw RenderError(fmt::format("Unknown conversion specifier {}", conversion));
    const std::string shown = conversion == 'r' ? to_repr(runtime_, value) : to_text(runtime_, value);
    return format_value(runtime_, runtime_.string(shown), specification);
  }

  static std::optional<int64_t> number(std::string_view text) {
    int64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || text[0] == '-' || code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
  }

  Value positional(int64_t index) {
    if (index >= static_cast<int64_t>(arguments_.positional.size()))
      throw RenderError(fmt::format("Replacement index {} out of range for positional args tuple", index));
    return arguments_.positional[static_cast<size_t>(index)];
  }

  Value first_value(std::string_view name) {
    if (name.empty()) {
      if (manual_) throw RenderError("cannot switch from manual field specification to automatic field numbering");
      automatic_ = true;
      return positional(next_++);
    }
    if (const auto index = number(name)) {
      if (automatic_) throw RenderError("cannot switch from automatic field numbering to manual field specification");
      manual_ = true;
      return positional(*index);
    }
    runtime_.charge(static_cast<int64_t>(arguments_.named.size()));
    for (const auto& [key, value] : arguments_.named)
      if (key == name) return value;
    throw RenderError(fmt::format("format() has no argument '{}'", name));
  }

  Value look_up(std::string_view path) {
    size_t at = std::min(path.find_first_of(".["), path.size());
    Value value = first_value(path.substr(0, at));
    while (at < path.size()) {
      if (path[at] == '.') {
        const size_t end = std::min(path.find_first_of(".[", at + 1), path.size());
        if (end == at + 1) throw RenderError("Empty attribute in format string");
        value = get_attribute(runtime_, value, std::string(path.substr(at + 1, end - at - 1)));
        at = end;
        continue;
      }
      const size_t end = path.find(']', at);
      if (path[at] != '[' || end == std::string_view::npos) throw RenderError("Missing ']' in format string");
      const std::string_view key = path.substr(at + 1, end - at - 1);
      if (key.empty()) throw RenderError("Empty attribute in format string");
      const auto index = number(key);
      value = get_item(runtime_, value, index ? Value::integer(*index) : runtime_.string(std::string(key)));
      at = end + 1;
    }
    return value;
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  int64_t next_ = 0;
  bool automatic_ = false;
  bool manual_ = false;
};

}  // namespace

std::string brace_format(Runtime& runtime, const std::string& format, const Arguments& arguments) {
  runtime.charge_bytes(format.size());
  return BraceFormatter(runtime, arguments).run(format, 0);
}

}  // namespace tokenmill::jinja
