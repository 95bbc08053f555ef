#include "engine/text/jinja_value.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "engine/text/jinja_runtime.h"
#include "engine/text/jinja_unicode.h"
#include "kernels/core/check.h"

namespace tokenmill::jinja {
namespace {

constexpr size_t kHashedFrom = 8;

const std::vector<Value>& no_items() {
  static const std::vector<Value> empty;
  return empty;
}

}  // namespace

Value Value::boolean(bool value) {
  Value out;
  out.kind_ = ValueKind::kBool;
  out.int_ = 0;
  out.bool_ = value;
  return out;
}

Value Value::integer(int64_t value) {
  Value out;
  out.kind_ = ValueKind::kInt;
  out.int_ = value;
  return out;
}

Value Value::real(double value) {
  Value out;
  out.kind_ = ValueKind::kFloat;
  out.float_ = value;
  return out;
}

Value Value::object(ValueKind kind, std::shared_ptr<Object> object) {
  Value out;
  out.kind_ = kind;
  out.object_ = std::move(object);
  return out;
}

Value Value::string(std::string text) {
  auto object = std::make_shared<StringObject>();
  object->text = std::move(text);
  object->length = count_code_points(object->text);
  return Value::object(ValueKind::kString, std::move(object));
}

Value Value::big_integer(std::string digits) {
  Value out = string(std::move(digits));
  out.kind_ = ValueKind::kBigInt;
  return out;
}

Value Value::undefined(std::string message) {
  Value out = string(std::move(message));
  out.kind_ = ValueKind::kUndefined;
  return out;
}

bool Value::as_bool() const {
  TM_ASSERT(kind_ == ValueKind::kBool);
  return bool_;
}

int64_t Value::as_int() const {
  TM_ASSERT(is_integral());
  return kind_ == ValueKind::kBool ? static_cast<int64_t>(bool_) : int_;
}

double Value::as_double() const {
  TM_ASSERT(is_number());
  return kind_ == ValueKind::kFloat ? float_ : static_cast<double>(as_int());
}

const std::string& Value::text() const {
  TM_ASSERT(kind_ == ValueKind::kString || kind_ == ValueKind::kBigInt);
  return get<StringObject>().text;
}

int64_t Value::length() const {
  TM_ASSERT(kind_ == ValueKind::kString);
  return get<StringObject>().length;
}

const std::string& Value::undefined_message() const {
  TM_ASSERT(kind_ == ValueKind::kUndefined);
  return get<StringObject>().text;
}

const std::vector<Value>& Value::items() const {
  TM_ASSERT(is_sequence());
  return object_ == nullptr ? no_items() : get<SequenceObject>().items;
}

const char* Value::type_name() const {
  switch (kind_) {
    case ValueKind::kUndefined:
      return "Undefined";
    case ValueKind::kNone:
      return "NoneType";
    case ValueKind::kBool:
      return "bool";
    case ValueKind::kInt:
    case ValueKind::kBigInt:
      return "int";
    case ValueKind::kFloat:
      return "float";
    case ValueKind::kString:
      return "str";
    case ValueKind::kList:
      return "list";
    case ValueKind::kTuple:
      return "tuple";
    case ValueKind::kRange:
      return "range";
    case ValueKind::kDictKeys:
      return "dict_keys";
    case ValueKind::kDictValues:
      return "dict_values";
    case ValueKind::kDictItems:
      return "dict_items";
    case ValueKind::kDict:
      return "dict";
    case ValueKind::kGenerator:
      return "generator";
    case ValueKind::kNamespace:
      return "Namespace";
    case ValueKind::kCallable:
      return get<CallableObject>().is_macro ? "Macro" : "function";
    case ValueKind::kLoop:
      return "LoopContext";
    case ValueKind::kCycler:
      return "Cycler";
  }
  return "?";
}

bool Value::truthy() const {
  switch (kind_) {
    case ValueKind::kUndefined:
    case ValueKind::kNone:
      return false;
    case ValueKind::kBool:
      return bool_;
    case ValueKind::kInt:
      return int_ != 0;
    case ValueKind::kFloat:
      return float_ != 0;
    case ValueKind::kString:
      return !text().empty();
    case ValueKind::kDict:
      return !get<DictObject>().entries.empty();
    default:
      return is_sequence() ? !items().empty() : true;
  }
}

const Value* DictObject::find(Runtime& runtime, const Value& key) const {
  if (entries.size() <= kHashedFrom) {
    hash_value(runtime, key);  // refuses what cannot be a key
    for (const auto& [name, value] : entries)
      if (equal(runtime, name, key)) return &value;
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(hash_value(runtime, key));
  for (auto at = begin; at != end; ++at)
    if (equal(runtime, entries[at->second].first, key)) return &entries[at->second].second;
  return nullptr;
}

const Value* DictObject::find(std::string_view key) const {
  if (entries.size() <= kHashedFrom) {
    for (const auto& [name, value] : entries)
      if (name.is_string() && name.text() == key) return &value;
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(std::hash<std::string_view>{}(key));
  for (auto at = begin; at != end; ++at) {
    const auto& [name, value] = entries[at->second];
    if (name.is_string() && name.text() == key) return &value;
  }
  return nullptr;
}

void DictObject::set(Runtime& runtime, Value key, Value value) {
  if (const Value* existing = find(runtime, key)) {
    const_cast<Value&>(*existing) = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() == kHashedFrom + 1)
    for (size_t i = 0; i < entries.size(); ++i) index_.emplace(hash_value(runtime, entries[i].first), i);
  else if (entries.size() > kHashedFrom)
    index_.emplace(hash_value(runtime, entries.back().first), entries.size() - 1);
}

Value* NamespaceObject::find(std::string_view name) {
  for (auto& [key, value] : attributes)
    if (key == name) return &value;
  return nullptr;
}

size_t hash_value(Runtime& runtime, const Value& value) {
  runtime.charge(1);
  switch (value.kind()) {
    case ValueKind::kString:
    case ValueKind::kBigInt:
      return std::hash<std::string_view>{}(value.text());
    case ValueKind::kBool:
    case ValueKind::kInt:
      return std::hash<int64_t>{}(value.as_int());
    case ValueKind::kFloat: {
      const double d = value.as_double();
      if (std::trunc(d) == d && std::fabs(d) < 9e18) return std::hash<int64_t>{}(static_cast<int64_t>(d));
      return std::hash<double>{}(d);
    }
    case ValueKind::kTuple:
    case ValueKind::kRange: {
      size_t hash = 17;
      for (const Value& item : value.items()) hash = hash * 1000003 + hash_value(runtime, item);
      return hash;
    }
    case ValueKind::kList:
    case ValueKind::kDict:
    case ValueKind::kDictKeys:
    case ValueKind::kDictItems:
      throw RenderError(fmt::format("unhashable type: '{}'", value.type_name()));
    default:
      return std::hash<const void*>{}(value.object().get());
  }
}

namespace {

bool equal_items(Runtime& runtime, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!equal(runtime, a[i], b[i])) return false;
  return true;
}

bool equal_dicts(Runtime& runtime, const DictObject& a, const DictObject& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(runtime, key);
    if (other == nullptr || !equal(runtime, value, *other)) return false;
  }
  return true;
}

// dict_keys and dict_items compare as sets.
bool equal_sets(Runtime& runtime, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (const Value& item : a) {
    bool found = false;
    for (size_t i = 0; i < b.size() && !found; ++i) found = equal(runtime, item, b[i]);
    if (!found) return false;
  }
  return true;
}

int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return (a.as_int() > b.as_int()) - (a.as_int() < b.as_int());
  const auto x = static_cast<long double>(a.as_double());
  const auto y = static_cast<long double>(b.as_double());
  const long double exact_x = a.is_integral() ? static_cast<long double>(a.as_int()) : x;
  const long double exact_y = b.is_integral() ? static_cast<long double>(b.as_int()) : y;
  if (std::isnan(exact_x) || std::isnan(exact_y)) return 2;
  return (exact_x > exact_y) - (exact_x < exact_y);
}

}  // namespace

bool equal(Runtime& runtime, const Value& a, const Value& b) {
  runtime.charge(1);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case ValueKind::kUndefined:
    case ValueKind::kNone:
      return true;
    case ValueKind::kString:
    case ValueKind::kBigInt:
      if (a.text().size() == b.text().size()) runtime.charge_bytes(a.text().size());
      return a.text() == b.text();
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kRange:
      return a.object() == b.object() || equal_items(runtime, a.items(), b.items());
    case ValueKind::kDictKeys:
    case ValueKind::kDictItems:
      return equal_sets(runtime, a.items(), b.items());
    case ValueKind::kDict:
      return a.object() == b.object() || equal_dicts(runtime, a.get<DictObject>(), b.get<DictObject>());
    default:
      return a.object() == b.object();
  }
}

int compare(Runtime& runtime, const Value& a, const Value& b, const char* operation) {
  runtime.charge(1);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) {
    runtime.charge_bytes(std::min(a.text().size(), b.text().size()));
    const int order = a.text().compare(b.text());
    return (order > 0) - (order < 0);
  }
  const bool lists = a.kind() == b.kind() && (a.is(ValueKind::kList) || a.is(ValueKind::kTuple));
  if (lists) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i)
      if (!equal(runtime, x[i], y[i])) return compare(runtime, x[i], y[i], operation);
    return (x.size() > y.size()) - (x.size() < y.size());
  }
  if (a.is_undefined()) throw RenderError(a.undefined_message());
  if (b.is_undefined()) throw RenderError(b.undefined_message());
  throw RenderError(
      fmt::format("'{}' not supported between instances of '{}' and '{}'", operation, a.type_name(), b.type_name()));
}

}  // namespace tokenmill::jinja
