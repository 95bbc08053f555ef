// Methods of strings: cutting, finding, replacing, case.
#include "engine/text/jinja_methods_string.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "engine/text/jinja_unicode.h"

namespace tokenmill::jinja {
namespace {

template <std::string (*transform)(std::string_view)>
Value method_case(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "str method", {});
  return runtime.string(transform(self.text()));
}

template <bool left, bool right>
Value method_strip(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "strip", {"chars"});
  if (!bound.has(0)) return runtime.string(std::string(strip_space(self.text(), left, right)));
  runtime.charge_bytes(self.text().size() * bound.text(0).size());
  return runtime.string(std::string(strip_characters(self.text(), bound.text(0), left, right)));
}

void add_piece(Runtime& runtime, std::vector<Value>& pieces, std::string_view piece) {
  runtime.charge_items(2);
  pieces.push_back(runtime.string(std::string(piece)));
}

// White space runs separate; at most `limit` cuts (negative: no limit).
std::vector<Value> split_space(Runtime& runtime, std::string_view text, int64_t limit) {
  std::vector<Value> pieces;
  std::string_view rest = strip_space(text, true, false);
  while (!rest.empty()) {
    if (limit == 0) {
      add_piece(runtime, pieces, rest);
      break;
    }
    size_t end = 0;
    while (end < rest.size()) {
      size_t next = end;
      if (is_space(next_code_point(rest, next))) break;
      end = next;
    }
    add_piece(runtime, pieces, rest.substr(0, end));
    rest = strip_space(rest.substr(end), true, false);
    --limit;
  }
  return pieces;
}

std::vector<Value> rsplit_space(Runtime& runtime, std::string_view text, int64_t limit) {
  std::vector<Value> pieces;
  std::string_view rest = strip_space(text, false, true);
  while (!rest.empty()) {
    if (limit == 0) {
      add_piece(runtime, pieces, rest);
      break;
    }
    size_t begin = rest.size();
    while (begin > 0) {
      size_t start = begin - 1;
      while (start > 0 && (static_cast<unsigned char>(rest[start]) & 0xc0) == 0x80) --start;
      size_t at = start;
      if (is_space(next_code_point(rest, at))) break;
      begin = start;
    }
    add_piece(runtime, pieces, rest.substr(begin));
    rest = strip_space(rest.substr(0, begin), false, true);
    --limit;
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

// All places of `separator` from the left, at most `limit` of them.
std::vector<size_t> find_all(Runtime& runtime, std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<size_t> places;
  for (size_t at = find_text(text, separator); at != std::string_view::npos && limit != 0; --limit) {
    runtime.charge_items(1);
    places.push_back(at);
    at = find_text(text, separator, at + separator.size());
  }
  return places;
}

// The same from the right: what str.rsplit cuts at.
std::vector<size_t> rfind_all(Runtime& runtime, std::string_view text, std::string_view separator, int64_t limit) {
  const std::string backwards(text.rbegin(), text.rend());
  const std::string pattern(separator.rbegin(), separator.rend());
  std::vector<size_t> places = find_all(runtime, backwards, pattern, limit);
  for (size_t& place : places) place = text.size() - place - separator.size();
  std::reverse(places.begin(), places.end());
  return places;
}

template <bool from_right>
Value method_split(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "split", {"sep", "maxsplit"});
  const int64_t limit = bound.integer(1, -1);
  const std::string& text = self.text();
  runtime.charge_bytes(text.size());
  if (!bound.has(0))
    return runtime.list(from_right ? rsplit_space(runtime, text, limit) : split_space(runtime, text, limit));
  const std::string& separator = bound.text(0);
  if (separator.empty()) throw RenderError("empty separator");
  const auto places =
      from_right ? rfind_all(runtime, text, separator, limit) : find_all(runtime, text, separator, limit);
  std::vector<Value> pieces;
  size_t begin = 0;
  for (const size_t place : places) {
    add_piece(runtime, pieces, std::string_view(text).substr(begin, place - begin));
    begin = place + separator.size();
  }
  add_piece(runtime, pieces, std::string_view(text).substr(begin));
  return runtime.list(std::move(pieces));
}

template <bool from_right>
Value method_partition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "partition", {"sep"}, 1);
  const std::string& text = self.text();
  const std::string& separator = bound.text(0);
  if (separator.empty()) throw RenderError("empty separator");
  const size_t place = from_right ? rfind_text(text, separator) : find_text(text, separator);
  const Value empty = runtime.string("");
  if (place == std::string::npos)
    return from_right ? runtime.tuple({empty, empty, self}) : runtime.tuple({self, empty, empty});
  return runtime.tuple(
      {runtime.string(text.substr(0, place)), *bound[0], runtime.string(text.substr(place + separator.size()))});
}

bool is_line_break(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

Value method_splitlines(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "splitlines", {"keepends"});
  const bool keep = bound.flag(0, false);
  const std::string_view text = self.text();
  std::vector<Value> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = next_code_point(text, at);
    if (!is_line_break(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    add_piece(runtime, lines, text.substr(begin, (keep ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) add_piece(runtime, lines, text.substr(begin));
  return runtime.list(std::move(lines));
}

// The part of a text between two code-point positions, as the start and end arguments of find and its kin give it.
struct Window {
  Window(const Value& self, const Bound& bound, size_t first) {
    const int64_t length = self.length();
    const auto clamp = [&](int64_t at) { return at < 0 ? std::max<int64_t>(at + length, 0) : at; };
    const int64_t start = bound.has(first) ? clamp(bound.integer(first, 0)) : 0;
    const int64_t stop = std::min(bound.has(first + 1) ? clamp(bound.integer(first + 1, length)) : length, length);
    offset = start;
    valid = start <= stop;
    if (!valid) return;
    const size_t begin = byte_offset(self.text(), start);
    text = std::string_view(self.text()).substr(begin, byte_offset(self.text(), stop) - begin);
  }
  std::string_view text;
  int64_t offset = 0;
  bool valid = true;  ///< false: nothing is found in it, not even ""
};

template <bool starts>
Value method_affix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, starts ? "startswith" : "endswith", {"prefix", "start", "end"}, 1);
  const Window window(self, bound, 1);
  runtime.charge(1);
  const auto matches = [&](const std::string& affix) {
    return window.valid && (starts ? window.text.starts_with(affix) : window.text.ends_with(affix));
  };
  if (!bound[0]->is(ValueKind::kTuple)) return Value::boolean(matches(bound.text(0)));
  for (const Value& affix : bound[0]->items()) {
    if (!affix.is_string()) throw RenderError(fmt::format("a prefix must be str, not {}", affix.type_name()));
    if (matches(affix.text())) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool from_right, bool must_exist>
Value method_find(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "find", {"sub", "start", "end"}, 1);
  const Window window(self, bound, 1);
  const std::string& needle = bound.text(0);
  runtime.charge_bytes(self.text().size());
  const size_t place = !window.valid ? std::string_view::npos
                                     : (from_right ? rfind_text(window.text, needle) : find_text(window.text, needle));
  if (place != std::string_view::npos)
    return Value::integer(window.offset + count_code_points(window.text.substr(0, place)));
  if (must_exist) throw RenderError("substring not found");
  return Value::integer(-1);
}

Value method_count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "count", {"sub", "start", "end"}, 1);
  const Window window(self, bound, 1);
  const std::string& needle = bound.text(0);
  runtime.charge_bytes(self.text().size());
  if (!window.valid) return Value::integer(0);
  if (needle.empty()) return Value::integer(count_code_points(window.text) + 1);
  return Value::integer(static_cast<int64_t>(find_all(runtime, window.text, needle, -1).size()));
}

Value method_replace(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "replace", {"old", "new", "count"}, 2);
  const std::string& text = self.text();
  const std::string& before = bound.text(0);
  const std::string& after = bound.text(1);
  const int64_t limit = bound.integer(2, -1);
  std::vector<size_t> places;
  if (before.empty()) {
    for (size_t at = 0; limit < 0 || static_cast<int64_t>(places.size()) < limit;) {
      runtime.charge_items(1);
      places.push_back(at);
      if (at >= text.size()) break;
      next_code_point(text, at);
    }
  } else {
    places = find_all(runtime, text, before, limit);
  }
  runtime.charge_bytes(text.size());
  std::string out;
  size_t begin = 0;
  for (const size_t place : places) {
    runtime.charge_bytes(after.size());
    out.append(text, begin, place - begin);
    out += after;
    begin = place + before.size();
  }
  out.append(text, begin);
  return runtime.string(std::move(out));
}

Value method_join(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "join", {"iterable"}, 1);
  std::string out;
  size_t index = 0;
  Iterator iterator(runtime, *bound[0]);
  Value item;
  for (; iterator.next(item); ++index) {
    if (!item.is_string())
      throw RenderError(fmt::format("sequence item {}: expected str instance, {} found", index, item.type_name()));
    runtime.charge_bytes(self.text().size() + item.text().size());
    if (index > 0) out += self.text();
    out += item.text();
  }
  return runtime.string(std::move(out));
}

Value method_format(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return runtime.string(brace_format(runtime, self.text(), arguments));
}

Value method_removeprefix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "removeprefix", {"prefix"}, 1);
  return self.text().starts_with(bound.text(0)) ? runtime.string(self.text().substr(bound.text(0).size())) : self;
}

Value method_removesuffix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "removesuffix", {"suffix"}, 1);
  const std::string& text = self.text();
  if (bound.text(0).empty() || !text.ends_with(bound.text(0))) return self;
  return runtime.string(text.substr(0, text.size() - bound.text(0).size()));
}

constexpr StringMethod kMethods[] = {
    {"strip", method_strip<true, true>},
    {"lstrip", method_strip<true, false>},
    {"rstrip", method_strip<false, true>},
    {"split", method_split<false>},
    {"rsplit", method_split<true>},
    {"partition", method_partition<false>},
    {"rpartition", method_partition<true>},
    {"splitlines", method_splitlines},
    {"startswith", method_affix<true>},
    {"endswith", method_affix<false>},
    {"replace", method_replace},
    {"upper", method_case<to_upper>},
    {"lower", method_case<to_lower>},
    {"title", method_case<to_title>},
    {"capitalize", method_case<capitalize>},
    {"swapcase", method_case<swap_case>},
    {"casefold", method_case<case_fold>},
    {"find", method_find<false, false>},
    {"rfind", method_find<true, false>},
    {"index", method_find<false, true>},
    {"rindex", method_find<true, true>},
    {"count", method_count},
    {"join", method_join},
    {"format", method_format},
    {"removeprefix", method_removeprefix},
    {"removesuffix", method_removesuffix},
};

}  // namespace

bool is_missing_string_method(std::string_view name) {
  constexpr std::array<std::string_view, 4> kMissing = {"encode", "translate", "maketrans", "format_map"};
  return std::find(kMissing.begin(), kMissing.end(), name) != kMissing.end();
}

Value find_string_method(Runtime& runtime, const Value& object, const std::string& name) {
  for (const auto methods : {std::span<const StringMethod>(kMethods), string_layout_methods()})
    for (const StringMethod& entry : methods)
      if (entry.name == name)
        return runtime.callable(
            "str." + name,
            [object, method = entry.method](Runtime& rt, Arguments& arguments) {
              return method(rt, object, arguments);
            },
            object);
  if (is_missing_string_method(name))
    return Value::undefined(fmt::format("method '{}' of strings is not supported", name));
  return {};
}

}  // namespace tokenmill::jinja
