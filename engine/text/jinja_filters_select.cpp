// Filters that look at the items of a sequence one by one: by attribute, by a test, through another filter, in order.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "engine/text/jinja_filters.h"
#include "engine/text/jinja_unicode.h"

namespace tokenmill::jinja {
namespace {

// "a.b.0" as steps of get_item; digits are integers. None: no steps.
std::vector<Value> attribute_path(Runtime& runtime, const Value* attribute) {
  std::vector<Value> path;
  if (attribute == nullptr || attribute->is_none()) return path;
  if (!attribute->is_string()) return {*attribute};
  const std::string_view text = attribute->text();
  for (size_t begin = 0;;) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    int64_t number = 0;
    const auto [last, code] = std::from_chars(part.data(), part.data() + part.size(), number);
    const bool is_number = code == std::errc{} && last == part.data() + part.size() && part[0] != '-';
    path.push_back(is_number ? Value::integer(number) : runtime.string(std::string(part)));
    if (end == text.size()) return path;
    begin = end + 1;
  }
}

Value follow(Runtime& runtime, Value item, const std::vector<Value>& path, const std::optional<Value>& otherwise = {}) {
  for (const Value& step : path) {
    item = get_item(runtime, item, step);
    if (otherwise && item.is_undefined()) item = *otherwise;
  }
  return item;
}

Value lower_key(Runtime& runtime, Value key, bool case_sensitive) {
  return !case_sensitive && key.is_string() ? runtime.string(to_lower(key.text())) : key;
}

// The value, or what Bound found, when it is given and not None.
std::optional<Value> given(const Bound& bound, size_t parameter) {
  return bound.has(parameter) ? std::optional<Value>(*bound[parameter]) : std::nullopt;
}

Value filter_join(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "join", {"d", "attribute"});
  const std::string separator = bound[0] == nullptr ? "" : to_text(runtime, *bound[0]);
  const std::vector<Value> path = attribute_path(runtime, bound[1]);
  std::string out;
  bool first = true;
  Iterator iterator(runtime, input);
  Value item;
  while (iterator.next(item)) {
    if (!first) out += separator;
    first = false;
    runtime.charge_bytes(separator.size());
    out += to_text(runtime, follow(runtime, item, path));
  }
  return runtime.string(std::move(out));
}

Value filter_sum(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "sum", {"attribute", "start"});
  Value total = bound[1] == nullptr ? Value::integer(0) : *bound[1];
  if (total.is_string()) throw RenderError("sum() can't sum strings [use ''.join(seq) instead]");
  const std::vector<Value> path = attribute_path(runtime, bound[0]);
  Iterator iterator(runtime, input);
  Value item;
  while (iterator.next(item)) total = apply_binary(runtime, BinaryOperator::kAdd, total, follow(runtime, item, path));
  return total;
}

template <bool largest>
Value filter_extreme(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, largest ? "max" : "min", {"case_sensitive", "attribute"});
  const std::vector<Value> path = attribute_path(runtime, bound[1]);
  Iterator iterator(runtime, input);
  Value item;
  std::optional<Value> best;
  Value best_key;
  while (iterator.next(item)) {
    Value key = lower_key(runtime, follow(runtime, item, path), bound.flag(0, false));
    if (best && compare(runtime, key, best_key, largest ? ">" : "<") != (largest ? 1 : -1)) continue;
    best = item;
    best_key = std::move(key);
  }
  return best ? *best : Value::undefined("No aggregated item, sequence was empty.");
}

std::vector<std::vector<Value>> attribute_paths(Runtime& runtime, const Value* attribute) {
  std::vector<std::vector<Value>> paths;
  if (attribute == nullptr || !attribute->is_string()) return {attribute_path(runtime, attribute)};
  const std::string& text = attribute->text();
  for (size_t begin = 0;;) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const Value part = runtime.string(text.substr(begin, end - begin));
    paths.push_back(attribute_path(runtime, &part));
    if (end == text.size()) return paths;
    begin = end + 1;
  }
}

Value filter_sort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  const auto paths = attribute_paths(runtime, bound[2]);
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : to_vector(runtime, input)) {
    std::vector<Value> keys;
    for (const auto& path : paths)
      keys.push_back(lower_key(runtime, follow(runtime, item, path), bound.flag(1, false)));
    keyed.emplace_back(runtime.list(std::move(keys)), std::move(item));
  }
  const bool reverse = bound.flag(0, false);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? compare(runtime, b.first, a.first, "<") == -1 : compare(runtime, a.first, b.first, "<") == -1;
  });
  std::vector<Value> items;
  for (auto& entry : keyed) items.push_back(std::move(entry.second));
  return runtime.list(std::move(items));
}

Value filter_unique(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "unique", {"case_sensitive", "attribute"});
  auto iterator = std::make_shared<Iterator>(runtime, input);
  auto seen = std::make_shared<DictObject>();
  return runtime.generator(input, [&runtime, iterator, seen, case_sensitive = bound.flag(0, false),
                                   path = attribute_path(runtime, bound[1])](Value& out) {
    Value item;
    while (iterator->next(item)) {
      const Value key = lower_key(runtime, follow(runtime, item, path), case_sensitive);
      if (seen->find(runtime, key) != nullptr) continue;
      runtime.charge_items(4);
      seen->set(runtime, key, {});
      out = std::move(item);
      return true;
    }
    return false;
  });
}

Value filter_groupby(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  const std::vector<Value> path = attribute_path(runtime, bound[0]);
  const std::optional<Value> otherwise = given(bound, 1);
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : to_vector(runtime, input)) {
    Value key = lower_key(runtime, follow(runtime, item, path, otherwise), bound.flag(2, false));
    keyed.emplace_back(std::move(key), std::move(item));
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [&](const auto& a, const auto& b) { return compare(runtime, a.first, b.first, "<") == -1; });
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    size_t end = begin + 1;
    while (end < keyed.size() && equal(runtime, keyed[end].first, keyed[begin].first)) ++end;
    std::vector<Value> members;
    for (size_t i = begin; i < end; ++i) members.push_back(keyed[i].second);
    Value name = follow(runtime, members[0], path, otherwise);
    groups.push_back(runtime.tuple({std::move(name), runtime.list(std::move(members))}));
    begin = end;
  }
  return runtime.list(std::move(groups));
}

// A filter or test called by its name, as map, select and their kin do.
Arguments rest_of(const Arguments& arguments, size_t used) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(used), arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

const std::string& name_argument(const Arguments& arguments, size_t position, const char* what) {
  if (!arguments.positional[position].is_string())
    throw RenderError(fmt::format("the name of a {} must be a string", what));
  return arguments.positional[position].text();
}

Value filter_map(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!is_iterable(input)) throw RenderError(fmt::format("'{}' object is not iterable", input.type_name()));
  const bool by_attribute =
      arguments.positional.empty() &&
      std::any_of(arguments.named.begin(), arguments.named.end(), [](const auto& n) { return n.first == "attribute"; });
  if (by_attribute) {
    const Bound bound(arguments, "map", {"attribute", "default"});
    auto iterator = std::make_shared<Iterator>(runtime, input);
    return runtime.generator(
        input, [&runtime, iterator, path = attribute_path(runtime, bound[0]), otherwise = given(bound, 1)](Value& out) {
          Value item;
          if (!iterator->next(item)) return false;
          out = follow(runtime, std::move(item), path, otherwise);
          return true;
        });
  }
  if (arguments.positional.empty()) throw RenderError("map requires a filter argument");
  const std::string& name = name_argument(arguments, 0, "filter");
  const FilterFunction function = find_filter(name);
  if (function == nullptr) throw RenderError(fmt::format("No filter named '{}'.", name));
  auto iterator = std::make_shared<Iterator>(runtime, input);
  return runtime.generator(input, [&runtime, iterator, function, rest = rest_of(arguments, 1)](Value& out) {
    Value item;
    if (!iterator->next(item)) return false;
    out = function(runtime, item, rest);
    return true;
  });
}

template <bool by_attribute, bool keep>
Value filter_select(Runtime& runtime, const Value& input, const Arguments& arguments) {
  std::vector<Value> path;
  if (!input.truthy()) {  // nothing to look at: jinja2 does not even check the arguments
    return runtime.generator(input, [](Value&) { return false; });
  }
  constexpr size_t kFirst = by_attribute ? 1 : 0;
  if (by_attribute) {
    if (arguments.positional.empty()) throw RenderError("Missing parameter for attribute name");
    path = attribute_path(runtime, &arguments.positional[0]);
  }
  TestFunction function = nullptr;
  Arguments rest;
  if (arguments.positional.size() > kFirst) {
    const std::string& name = name_argument(arguments, kFirst, "test");
    function = find_test(name);
    if (function == nullptr) throw RenderError(fmt::format("No test named '{}'.", name));
    rest = rest_of(arguments, kFirst + 1);
  }
  auto iterator = std::make_shared<Iterator>(runtime, input);
  return runtime.generator(input, [&runtime, iterator, path, function, rest](Value& out) {
    Value item;
    while (iterator->next(item)) {
      const Value subject = follow(runtime, item, path);
      const bool passes = function == nullptr ? subject.truthy() : function(runtime, subject, rest);
      if (passes != keep) continue;
      out = std::move(item);
      return true;
    }
    return false;
  });
}

Value filter_attr(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "attr", {"name"}, 1);
  if (input.is_dict() && find_method(runtime, input, bound.text(0)).is_none())
    return Value::undefined(fmt::format("'dict object' has no attribute '{}'", bound.text(0)));
  return get_attribute(runtime, input, bound.text(0));
}

constexpr FilterEntry kFilters[] = {
    {"attr", filter_attr},
    {"groupby", filter_groupby},
    {"join", filter_join},
    {"map", filter_map},
    {"max", filter_extreme<true>},
    {"min", filter_extreme<false>},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<true, false>},
    {"select", filter_select<false, true>},
    {"selectattr", filter_select<true, true>},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};

}  // namespace

std::span<const FilterEntry> select_filters() { return kFilters; }

}  // namespace tokenmill::jinja
