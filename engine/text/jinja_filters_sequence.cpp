// Filters that take a sequence as a whole.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "engine/text/jinja_filters.h"
#include "engine/text/jinja_unicode.h"

namespace tokenmill::jinja {
namespace {

Value filter_default(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "default", {"default_value", "boolean"});
  if (!input.is_undefined() && !(bound.flag(1, false) && !input.truthy())) return input;
  return bound[0] == nullptr ? runtime.string("") : *bound[0];
}

Value filter_length(Runtime&, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "length", {});
  return Value::integer(length_of(input));
}

Value filter_first(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "first", {});
  Iterator iterator(runtime, input);
  Value item;
  return iterator.next(item) ? item : Value::undefined("No first item, sequence was empty.");
}

Value filter_last(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "last", {});
  if (input.is(ValueKind::kGenerator)) throw RenderError("'generator' object is not reversible; add | list");
  const std::vector<Value> items = to_vector(runtime, input);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value filter_list(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "list", {});
  return runtime.list(to_vector(runtime, input));
}

Value filter_items(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "items", {});
  if (!input.is_undefined() && !input.is_dict()) throw RenderError("Can only get item pairs from a mapping.");
  size_t position = 0;
  return runtime.generator(input, [&runtime, input, position](Value& out) mutable {
    if (input.is_undefined()) return false;
    const auto& entries = input.get<DictObject>().entries;
    if (position >= entries.size()) return false;
    out = runtime.tuple({entries[position].first, entries[position].second});
    ++position;
    return true;
  });
}

Value filter_reverse(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "reverse", {});
  std::vector<Value> items = to_vector(runtime, input);
  std::reverse(items.begin(), items.end());
  if (input.is_string()) {
    std::string text;
    for (const Value& item : items) text += item.text();
    return runtime.string(std::move(text));
  }
  if (input.is(ValueKind::kGenerator)) return runtime.list(std::move(items));
  Value reversed = runtime.list(std::move(items));
  size_t position = 0;
  return runtime.generator(reversed, [reversed, position](Value& out) mutable {
    if (position >= reversed.items().size()) return false;
    out = reversed.items()[position++];
    return true;
  });
}

Value filter_batch(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "batch", {"linecount", "fill_with"}, 1);
  const int64_t count = bound.integer(0, 1);
  const std::optional<Value> fill = bound.has(1) ? std::optional<Value>(*bound[1]) : std::nullopt;
  auto iterator = std::make_shared<Iterator>(runtime, input);
  auto pending = std::make_shared<std::optional<Value>>();
  return runtime.generator(input, [&runtime, iterator, pending, count, fill](Value& out) {
    std::vector<Value> items;
    Value item;
    if (*pending) items.push_back(*std::exchange(*pending, std::nullopt));
    while (iterator->next(item)) {
      if (static_cast<int64_t>(items.size()) == count) {
        *pending = item;
        out = runtime.list(std::move(items));
        return true;
      }
      runtime.charge_items(1);
      items.push_back(item);
    }
    if (items.empty()) return false;
    if (fill && static_cast<int64_t>(items.size()) < count) {
      runtime.charge_items(static_cast<size_t>(count));
      items.resize(static_cast<size_t>(count), *fill);
    }
    out = runtime.list(std::move(items));
    return true;
  });
}

Value filter_slice(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "slice", {"slices", "fill_with"}, 1);
  const std::vector<Value> items = to_vector(runtime, input);
  const int64_t count = bound.integer(0, 1);
  if (count == 0) throw RenderError("integer division or modulo by zero");
  const auto length = static_cast<int64_t>(items.size());
  std::vector<Value> parts;
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bool extra = i < length % count;
    const int64_t size = length / count + (extra ? 1 : 0);
    std::vector<Value> part(items.begin() + begin, items.begin() + begin + size);
    if (bound.has(1) && !extra) part.push_back(*bound[1]);
    parts.push_back(runtime.list(std::move(part)));
    begin += size;
  }
  Value all = runtime.list(std::move(parts));
  size_t position = 0;
  return runtime.generator(all, [all, position](Value& out) mutable {
    if (position >= all.items().size()) return false;
    out = all.items()[position++];
    return true;
  });
}

Value filter_dictsort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  const bool case_sensitive = bound.flag(0, false);
  const std::string by = bound[1] == nullptr ? "key" : bound.text(1);
  if (by != "key" && by != "value") throw RenderError("You can only sort by either \"key\" or \"value\"");
  if (input.is_undefined()) throw RenderError(input.undefined_message());
  if (!input.is_dict()) throw RenderError(fmt::format("'{}' object has no attribute 'items'", input.type_name()));
  std::vector<std::pair<Value, Value>> keyed;  // sort key, pair
  for (const auto& [name, value] : input.get<DictObject>().entries) {
    Value key = by == "key" ? name : value;
    if (!case_sensitive && key.is_string()) key = runtime.string(to_lower(key.text()));
    keyed.emplace_back(std::move(key), runtime.tuple({name, value}));
  }
  const bool reverse = bound.flag(2, false);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? compare(runtime, b.first, a.first, "<") == -1 : compare(runtime, a.first, b.first, "<") == -1;
  });
  std::vector<Value> pairs;
  for (auto& entry : keyed) pairs.push_back(std::move(entry.second));
  return runtime.list(std::move(pairs));
}

constexpr FilterEntry kFilters[] = {
    {"batch", filter_batch}, {"count", filter_length},    {"d", filter_default},   {"default", filter_default},
    {"first", filter_first}, {"items", filter_items},     {"last", filter_last},   {"length", filter_length},
    {"list", filter_list},   {"reverse", filter_reverse}, {"slice", filter_slice}, {"dictsort", filter_dictsort},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() { return kFilters; }

}  // namespace tokenmill::jinja
