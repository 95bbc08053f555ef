// a.b, a[b], a[b:c], iteration, len and in: jinja2's environment.getattr and getitem over Python's containers.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/text/jinja_loop.h"
#include "engine/text/jinja_runtime.h"
#include "engine/text/jinja_unicode.h"

namespace tokenmill::jinja {
namespace {

const char* python_type(const Value& value) {
  if (value.is(ValueKind::kNamespace)) return "jinja2.utils.Namespace object";
  if (value.is_none()) return "None";
  return value.type_name();
}

Value no_attribute(const Value& object, const std::string& name) {
  const char* suffix = object.is_none() || object.is(ValueKind::kNamespace) ? "" : " object";
  return Value::undefined(fmt::format("'{}{}' has no attribute '{}'", python_type(object), suffix, name));
}

Value no_element(Runtime& runtime, const Value& object, const Value& key) {
  if (key.is_string()) return no_attribute(object, key.text());
  std::string shown = key.is(ValueKind::kGenerator) || key.is(ValueKind::kCallable) ? "?" : to_repr(runtime, key);
  if (shown.size() > 100) shown.resize(byte_offset(shown, 25));
  return Value::undefined(fmt::format("{} object has no element {}", python_type(object), shown));
}

// The attributes Python's getattr finds: methods, and what namespaces and loops hold. nullopt: AttributeError.
std::optional<Value> python_attribute(Runtime& runtime, const Value& object, const std::string& name) {
  std::optional<Value> found;
  if (object.is(ValueKind::kNamespace)) {
    runtime.charge(static_cast<int64_t>(object.get<NamespaceObject>().attributes.size() / 8));
    if (const Value* value = object.get<NamespaceObject>().find(name)) found = *value;
  } else if (object.is(ValueKind::kLoop)) {
    found = object.get<LoopObject>().attribute(runtime, object.object(), name);
  } else {
    Value method = find_method(runtime, object, name);
    if (!method.is_none()) found = std::move(method);
  }
  const bool internal = name.starts_with("__") && name.ends_with("__");
  if ((found && name.starts_with("_")) || internal)
    return Value::undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, object.type_name()));
  return found;
}

// obj[key] of Python; nullopt for TypeError and LookupError.
std::optional<Value> python_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_dict()) {
    const bool hashable = !key.is(ValueKind::kList) && !key.is(ValueKind::kDict) && !key.is(ValueKind::kDictKeys) &&
                          !key.is(ValueKind::kDictItems);
    if (!hashable) return std::nullopt;
    const Value* value = key.is_string() ? object.get<DictObject>().find(std::string_view(key.text()))
                                         : object.get<DictObject>().find(runtime, key);
    return value == nullptr ? std::nullopt : std::optional<Value>(*value);
  }
  if (!key.is_integral()) return std::nullopt;
  int64_t index = key.as_int();
  if (object.is_string()) {
    const int64_t length = object.length();
    if (index < 0) index += length;
    if (index < 0 || index >= length) return std::nullopt;
    const std::string& text = object.text();
    if (length == static_cast<int64_t>(text.size())) return runtime.string(text.substr(static_cast<size_t>(index), 1));
    runtime.charge_bytes(text.size());
    const size_t begin = byte_offset(text, index);
    size_t end = begin;
    next_code_point(text, end);
    return runtime.string(text.substr(begin, end - begin));
  }
  if (object.is(ValueKind::kList) || object.is(ValueKind::kTuple) || object.is(ValueKind::kRange)) {
    const auto length = static_cast<int64_t>(object.items().size());
    if (index < 0) index += length;
    if (index < 0 || index >= length) return std::nullopt;
    return object.items()[static_cast<size_t>(index)];
  }
  return std::nullopt;
}

}  // namespace

Value get_attribute(Runtime& runtime, const Value& object, const std::string& name) {
  if (object.is_undefined()) throw RenderError(object.undefined_message());
  if (auto found = python_attribute(runtime, object, name)) return *std::move(found);
  if (object.is_dict())
    if (const Value* value = object.get<DictObject>().find(std::string_view(name))) return *value;
  return no_attribute(object, name);
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_undefined()) throw RenderError(object.undefined_message());
  if (auto found = python_item(runtime, object, key)) return *std::move(found);
  if (key.is_string())
    if (auto found = python_attribute(runtime, object, key.text())) return *std::move(found);
  return no_element(runtime, object, key);
}

namespace {

int64_t slice_bound(const Value* bound, int64_t length, int64_t otherwise, bool backwards) {
  if (bound == nullptr || bound->is_none()) return otherwise;
  if (bound->is_undefined()) throw RenderError(bound->undefined_message());
  if (!bound->is_integral()) throw RenderError("slice indices must be integers or None or have an __index__ method");
  int64_t index = bound->as_int();
  if (index < 0) {
    index = index < -length ? -1 : index + length;
    if (index < 0) return backwards ? -1 : 0;
    return index;
  }
  return std::min(index, backwards ? length - 1 : length);
}

std::vector<int64_t> slice_positions(Runtime& runtime, int64_t length, const Value* start, const Value* stop,
                                     const Value* step) {
  int64_t stride = 1;
  if (step != nullptr && !step->is_none()) {
    if (step->is_undefined()) throw RenderError(step->undefined_message());
    if (!step->is_integral()) throw RenderError("slice indices must be integers or None or have an __index__ method");
    stride = step->as_int();
  }
  if (stride == 0) throw RenderError("slice step cannot be zero");
  stride = std::clamp<int64_t>(stride, -(length + 1), length + 1);
  const bool backwards = stride < 0;
  const int64_t from = slice_bound(start, length, backwards ? length - 1 : 0, backwards);
  const int64_t to = slice_bound(stop, length, backwards ? -1 : length, backwards);
  std::vector<int64_t> positions;
  for (int64_t at = from; backwards ? at > to : at < to; at += stride) {
    runtime.charge(1);
    positions.push_back(at);
  }
  return positions;
}

std::string slice_text(Runtime& runtime, const Value& object, const std::vector<int64_t>& positions) {
  const std::string& text = object.text();
  runtime.charge_bytes(text.size());
  std::string out;
  if (positions.empty()) return out;
  const bool contiguous = positions.back() - positions.front() + 1 == static_cast<int64_t>(positions.size());
  if (contiguous) {
    const bool ascii = object.length() == static_cast<int64_t>(text.size());
    const size_t begin = ascii ? static_cast<size_t>(positions.front()) : byte_offset(text, positions.front());
    const size_t end = ascii ? static_cast<size_t>(positions.back()) + 1 : byte_offset(text, positions.back() + 1);
    return text.substr(begin, end - begin);
  }
  std::vector<size_t> offsets;
  for (size_t at = 0; at < text.size(); next_code_point(text, at)) offsets.push_back(at);
  offsets.push_back(text.size());
  for (const int64_t position : positions) {
    const auto i = static_cast<size_t>(position);
    out.append(text, offsets[i], offsets[i + 1] - offsets[i]);
  }
  return out;
}

}  // namespace

Value get_slice(Runtime& runtime, const Value& object, const Value* start, const Value* stop, const Value* step) {
  if (object.is_undefined()) throw RenderError(object.undefined_message());
  if (object.is_string())
    return runtime.string(slice_text(runtime, object, slice_positions(runtime, object.length(), start, stop, step)));
  const bool sliceable = object.is(ValueKind::kList) || object.is(ValueKind::kTuple) || object.is(ValueKind::kRange);
  if (!sliceable) throw RenderError(fmt::format("'{}' object is not subscriptable by a slice", object.type_name()));
  std::vector<Value> out;
  const auto& items = object.items();
  for (const int64_t i : slice_positions(runtime, static_cast<int64_t>(items.size()), start, stop, step))
    out.push_back(items[static_cast<size_t>(i)]);
  return runtime.sequence(object.is(ValueKind::kRange) ? ValueKind::kList : object.kind(), std::move(out));
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_dict() || value.is_sequence() ||
         value.is(ValueKind::kGenerator) || value.is(ValueKind::kLoop);
}

Iterator::Iterator(Runtime& runtime, Value iterable) : runtime_(runtime), iterable_(std::move(iterable)) {
  if (!is_iterable(iterable_) || iterable_.is(ValueKind::kLoop))
    throw RenderError(fmt::format("'{}' object is not iterable", iterable_.type_name()));
}

bool Iterator::next(Value& out) {
  runtime_.charge(1);
  switch (iterable_.kind()) {
    case ValueKind::kUndefined:
      return false;
    case ValueKind::kString: {
      const std::string& text = iterable_.text();
      if (position_ >= text.size()) return false;
      const size_t begin = position_;
      next_code_point(text, position_);
      out = runtime_.string(text.substr(begin, position_ - begin));
      return true;
    }
    case ValueKind::kDict: {
      const auto& entries = iterable_.get<DictObject>().entries;
      if (position_ >= entries.size()) return false;
      out = entries[position_++].first;
      return true;
    }
    case ValueKind::kGenerator: {
      const DepthGuard guard(runtime_);
      return iterable_.get<GeneratorObject>().next(out);
    }
    default: {
      const auto& items = iterable_.items();
      if (position_ >= items.size()) return false;
      out = items[position_++];
      return true;
    }
  }
}

std::vector<Value> to_vector(Runtime& runtime, const Value& iterable) {
  std::vector<Value> out;
  Iterator iterator(runtime, iterable);
  Value item;
  while (iterator.next(item)) {
    runtime.charge_items(1);
    out.push_back(std::move(item));
  }
  return out;
}

int64_t length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return value.length();
  if (value.is_dict()) return static_cast<int64_t>(value.get<DictObject>().entries.size());
  if (value.is_sequence()) return static_cast<int64_t>(value.items().size());
  throw RenderError(fmt::format("object of type '{}' has no len()", value.type_name()));
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      if (item.is_undefined()) throw RenderError(item.undefined_message());
      throw RenderError(fmt::format("'in <string>' requires string as left operand, not {}", item.type_name()));
    }
    runtime.charge_bytes(container.text().size());
    return find_text(container.text(), item.text()) != std::string_view::npos;
  }
  if (container.is_dict()) return container.get<DictObject>().find(runtime, item) != nullptr;
  if (!is_iterable(container) || container.is(ValueKind::kLoop))
    throw RenderError(fmt::format("argument of type '{}' is not iterable", container.type_name()));
  Iterator iterator(runtime, container);
  Value candidate;
  while (iterator.next(candidate))
    if (equal(runtime, candidate, item)) return true;
  return false;
}

}  // namespace tokenmill::jinja
