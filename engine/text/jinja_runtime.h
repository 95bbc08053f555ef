#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/jinja.h"
#include "engine/text/jinja_value.h"

namespace tokenmill::jinja {

/// Containers inside containers, at most; JSON input is at most 256 deep.
inline constexpr int kMaxValueDepth = 400;
/// Evaluations inside evaluations, at most: bounds the C++ stack (a few hundred bytes each).
inline constexpr int kMaxEvaluationDepth = 2000;

/// One rendering: its limits, its clock, and the making of values under those limits. One thread.
class Runtime {
 public:
  Runtime(const RenderLimits& limits, const CivilTime& now) : limits_(limits), now_(now), work_left_(limits.max_work) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// Uses up work; throws RenderError when none is left. Called before memory is taken.
  void charge(int64_t units) {
    work_left_ -= units;
    if (work_left_ < 0) [[unlikely]]
      out_of_work();
  }
  void charge_bytes(size_t bytes) { charge(static_cast<int64_t>(bytes / 8) + 1); }
  void charge_items(size_t items) { charge(static_cast<int64_t>(items) * 4 + 1); }

  Value string(std::string text) {
    charge_bytes(text.size());
    return Value::string(std::move(text));
  }
  Value list(std::vector<Value> items) { return sequence(ValueKind::kList, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(ValueKind::kTuple, std::move(items)); }
  Value sequence(ValueKind kind, std::vector<Value> items);
  Value dict(std::vector<std::pair<Value, Value>> entries);
  Value generator(const Value& source, std::function<bool(Value&)> next);
  /// A function; `self` is what it holds on to (for the depth limit), if anything.
  Value callable(std::string name, std::function<Value(Runtime&, Arguments&)> call, const Value& self = {});
  /// A namespace lives until the end of the rendering: values may point to it and it to them.
  Value make_namespace(std::vector<std::pair<std::string, Value>> attributes);
  Value from_json(const io::JsonValue& json);

  const RenderLimits& limits() const { return limits_; }
  const CivilTime& now() const { return now_; }

  int evaluation_depth = 0;

 private:
  [[noreturn]] void out_of_work() const;

  RenderLimits limits_;
  CivilTime now_;
  int64_t work_left_;
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
};

/// Counts one level of evaluation while it lives; throws RenderError beyond kMaxEvaluationDepth.
class DepthGuard {
 public:
  explicit DepthGuard(Runtime& runtime);
  ~DepthGuard() { --runtime_.evaluation_depth; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Runtime& runtime_;
};

/// Arguments of a built-in function by parameter name, as Python binds them; RenderError when they do not fit.
class Bound {
 public:
  Bound(const Arguments& arguments, std::string_view function, std::initializer_list<const char*> parameters,
        size_t num_required = 0);
  /// nullptr when not given.
  const Value* operator[](size_t parameter) const { return values_[parameter]; }
  bool flag(size_t parameter, bool otherwise) const;
  /// An integer parameter; RenderError for another type.
  int64_t integer(size_t parameter, int64_t otherwise) const;
  /// A string parameter; RenderError for another type.
  const std::string& text(size_t parameter) const;
  /// Given and not None.
  bool has(size_t parameter) const { return values_[parameter] != nullptr && !values_[parameter]->is_none(); }

 private:
  std::string function_;
  std::vector<const char*> parameters_;
  std::vector<const Value*> values_;
};

using FilterFunction = Value (*)(Runtime&, const Value& input, const Arguments&);
using TestFunction = bool (*)(Runtime&, const Value& input, const Arguments&);
/// nullptr when there is none of that name.
FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);

/// The functions every template sees: range, dict, namespace, raise_exception, strftime_now, cycler, joiner.
std::vector<std::pair<std::string, Value>> make_globals(Runtime& runtime);

Value call_value(Runtime& runtime, const Value& callee, Arguments& arguments);

// Access (jinja_access.cpp). Missing attributes and items are undefined values, as in Jinja.
Value get_attribute(Runtime& runtime, const Value& object, const std::string& name);  // a.b
Value get_item(Runtime& runtime, const Value& object, const Value& key);              // a[b]
/// a[start:stop:step]; nullptr for a part left out.
Value get_slice(Runtime& runtime, const Value& object, const Value* start, const Value* stop, const Value* step);
bool contains(Runtime& runtime, const Value& container, const Value& item);
int64_t length_of(const Value& value);

/// A method of a string, dict, list, tuple or cycler bound to it; none when the type has no such attribute. A method
/// that would change a dict or list is an undefined value that says so (the sandbox is immutable).
Value find_method(Runtime& runtime, const Value& object, const std::string& name);
Value find_string_method(Runtime& runtime, const Value& object, const std::string& name);
/// True for a method of Python's str that is not offered here.
bool is_missing_string_method(std::string_view name);

/// Walks any iterable; RenderError("'int' object is not iterable") for others.
class Iterator {
 public:
  Iterator(Runtime& runtime, Value iterable);
  bool next(Value& out);

 private:
  Runtime& runtime_;
  Value iterable_;
  size_t position_ = 0;
};
bool is_iterable(const Value& value);
std::vector<Value> to_vector(Runtime& runtime, const Value& iterable);

enum class BinaryOperator : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
Value apply_binary(Runtime& runtime, BinaryOperator operation, const Value& left, const Value& right);
Value apply_negative(Runtime& runtime, const Value& operand);
Value apply_positive(Runtime& runtime, const Value& operand);

/// format % arguments, and format.format(...).
std::string percent_format(Runtime& runtime, const std::string& format, const Value& arguments);
std::string brace_format(Runtime& runtime, const std::string& format, const Arguments& arguments);
/// format(value, specification): width, alignment, sign, precision, type.
std::string format_value(Runtime& runtime, const Value& value, const std::string& specification);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool indented = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
/// json.dumps(value): what tojson gives.
std::string dump_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace tokenmill::jinja
