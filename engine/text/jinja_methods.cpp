// Methods of dicts, lists, tuples and cyclers. Methods that change a dict or list are refused, as by jinja2's
// ImmutableSandboxedEnvironment.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "engine/text/jinja_runtime.h"

namespace tokenmill::jinja {
namespace {

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value unsafe(const Value& object, std::string_view name) {
  return Value::undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, object.type_name()));
}

Value view(Runtime& runtime, const DictObject& dict, ValueKind kind) {
  std::vector<Value> items;
  runtime.charge_items(dict.entries.size());
  for (const auto& [key, value] : dict.entries) {
    if (kind == ValueKind::kDictKeys)
      items.push_back(key);
    else if (kind == ValueKind::kDictValues)
      items.push_back(value);
    else
      items.push_back(runtime.tuple({key, value}));
  }
  return runtime.sequence(kind, std::move(items));
}

Value dict_method(Runtime& runtime, const Value& object, const std::string& name) {
  if (is_one_of(name, {"clear", "pop", "popitem", "setdefault", "update"})) return unsafe(object, name);
  const auto bind = [&](auto function) {
    return runtime.callable(
        "dict." + name,
        [object, function](Runtime& rt, Arguments& arguments) {
          return function(rt, object.get<DictObject>(), arguments);
        },
        object);
  };
  if (name == "get")
    return bind([](Runtime& rt, const DictObject& dict, Arguments& arguments) {
      if (!arguments.named.empty()) throw RenderError("dict.get() takes no keyword arguments");
      const Bound bound(arguments, "dict.get", {"key", "default"}, 1);
      if (const Value* value = dict.find(rt, *bound[0])) return *value;
      return bound[1] == nullptr ? Value() : *bound[1];
    });
  const auto bind_view = [&](ValueKind kind) {
    return bind([kind](Runtime& rt, const DictObject& dict, Arguments& arguments) {
      const Bound bound(arguments, "dict view", {});
      return view(rt, dict, kind);
    });
  };
  if (name == "items") return bind_view(ValueKind::kDictItems);
  if (name == "keys") return bind_view(ValueKind::kDictKeys);
  if (name == "values") return bind_view(ValueKind::kDictValues);
  if (name == "copy")
    return bind([object](Runtime&, const DictObject&, Arguments& arguments) {
      const Bound bound(arguments, "dict.copy", {});
      return object;
    });
  return {};
}

Value index_of(Runtime& runtime, const Value& object, Arguments& arguments) {
  const Bound bound(arguments, "index", {"value", "start", "stop"}, 1);
  const auto& items = object.items();
  const auto length = static_cast<int64_t>(items.size());
  const auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + length : at, 0, length); };
  const int64_t stop = clamp(bound.integer(2, length));
  for (int64_t i = clamp(bound.integer(1, 0)); i < stop; ++i)
    if (equal(runtime, items[static_cast<size_t>(i)], *bound[0])) return Value::integer(i);
  throw RenderError(fmt::format("{}.index(x): x not in {}", object.type_name(), object.type_name()));
}

Value count_in(Runtime& runtime, const Value& object, Arguments& arguments) {
  const Bound bound(arguments, "count", {"value"}, 1);
  int64_t count = 0;
  for (const Value& item : object.items())
    if (equal(runtime, item, *bound[0])) ++count;
  return Value::integer(count);
}

Value sequence_method(Runtime& runtime, const Value& object, const std::string& name) {
  const bool is_list = object.is(ValueKind::kList);
  if (is_list && is_one_of(name, {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"}))
    return unsafe(object, name);
  const auto bind = [&](auto function) {
    return runtime.callable(
        std::string(object.type_name()) + "." + name,
        [object, function](Runtime& rt, Arguments& arguments) { return function(rt, object, arguments); }, object);
  };
  if (name == "index") return bind(index_of);
  if (name == "count") return bind(count_in);
  if (is_list && name == "copy")
    return bind([](Runtime&, const Value& list, Arguments& arguments) {
      const Bound bound(arguments, "list.copy", {});
      return list;
    });
  return {};
}

Value cycler_attribute(Runtime& runtime, const Value& object, const std::string& name) {
  auto& cycler = object.get<CyclerObject>();
  if (name == "current") return cycler.items[cycler.position];
  if (name == "next" || name == "reset")
    return runtime.callable(
        "cycler." + name,
        [object, moves = name == "next"](Runtime&, Arguments& arguments) {
          const Bound bound(arguments, "cycler", {});
          auto& self = object.get<CyclerObject>();
          const size_t position = self.position;
          self.position = moves ? (position + 1) % self.items.size() : 0;
          return moves ? self.items[position] : Value();
        },
        object);
  return {};
}

}  // namespace

Value find_method(Runtime& runtime, const Value& object, const std::string& name) {
  switch (object.kind()) {
    case ValueKind::kString:
      return find_string_method(runtime, object, name);
    case ValueKind::kDict:
      return dict_method(runtime, object, name);
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kRange:
      return sequence_method(runtime, object, name);
    case ValueKind::kCycler:
      return cycler_attribute(runtime, object, name);
    default:
      return {};
  }
}

}  // namespace tokenmill::jinja
