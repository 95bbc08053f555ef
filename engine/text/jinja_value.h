#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tokenmill::jinja {

class Runtime;
class Value;

/// Ends one rendering: a wrong operation, an undefined variable, raise_exception or a limit. Template::render turns it
/// into the text of RenderResult::error; it never leaves this folder.
class RenderError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class ValueKind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,  ///< digits of an integer beyond int64, from input only: it prints, compares equal and nothing else
  kFloat,
  kString,
  kList,
  kTuple,
  kRange,
  kDictKeys,
  kDictValues,
  kDictItems,
  kDict,
  kGenerator,
  kNamespace,
  kCallable,  ///< function, bound method, macro
  kLoop,
  kCycler,
};

/// What a value owns. Everything but generators, loops, cyclers and joiners is immutable once built.
struct Object {
  virtual ~Object() = default;
  /// Containers inside containers; Runtime::bounded refuses more than kMaxValueDepth, so that recursion over a value
  /// (printing, comparing, freeing) is bounded.
  int depth = 0;
};

/// A Python value as templates see it. 24 to 32 bytes; copies share the object. Not for use by two threads at once.
class Value {
 public:
  Value() : kind_(ValueKind::kNone), int_(0) {}
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value real(double value);
  static Value string(std::string text);
  static Value big_integer(std::string digits);
  /// A missing value; message is what using it reports ("'x' is undefined").
  static Value undefined(std::string message);
  static Value object(ValueKind kind, std::shared_ptr<Object> object);

  ValueKind kind() const { return kind_; }
  bool is(ValueKind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == ValueKind::kUndefined; }
  bool is_none() const { return kind_ == ValueKind::kNone; }
  bool is_string() const { return kind_ == ValueKind::kString; }
  bool is_dict() const { return kind_ == ValueKind::kDict; }
  /// bool counts as an integer, as in Python.
  bool is_integral() const { return kind_ == ValueKind::kInt || kind_ == ValueKind::kBool; }
  bool is_number() const { return is_integral() || kind_ == ValueKind::kFloat; }
  /// list, tuple, range or a dict view: `items()` is legal.
  bool is_sequence() const { return kind_ >= ValueKind::kList && kind_ <= ValueKind::kDictItems; }

  // Only legal for the matching kind (asserted).
  bool as_bool() const;
  int64_t as_int() const;    ///< kInt or kBool
  double as_double() const;  ///< kInt, kBool or kFloat
  const std::string& text() const;
  int64_t length() const;  ///< code points of a string
  const std::vector<Value>& items() const;
  const std::string& undefined_message() const;
  template <typename T>
  T& get() const {
    return static_cast<T&>(*object_);
  }
  const std::shared_ptr<Object>& object() const { return object_; }

  int depth() const { return object_ == nullptr ? 0 : object_->depth; }
  /// Python's type name: "str", "NoneType", "list", ...
  const char* type_name() const;
  /// Python's truth value. A generator is always true.
  bool truthy() const;

 private:
  ValueKind kind_;
  union {
    bool bool_;
    int64_t int_;
    double float_;
  };
  std::shared_ptr<Object> object_;
};

struct StringObject : Object {
  std::string text;
  int64_t length = 0;  ///< code points
};

struct SequenceObject : Object {
  std::vector<Value> items;
  std::string label;  ///< kRange: what it prints as, "range(0, 3)"
};

/// Insertion order, keys unique under Python's equality (1, 1.0 and true are one key).
struct DictObject : Object {
  std::vector<std::pair<Value, Value>> entries;
  /// nullptr when absent. Throws RenderError for an unhashable key.
  const Value* find(Runtime& runtime, const Value& key) const;
  const Value* find(std::string_view key) const;
  /// Adds or replaces. For building only.
  void set(Runtime& runtime, Value key, Value value);

 private:
  std::unordered_multimap<size_t, size_t> index_;  // hash -> entry, used above kHashedFrom entries
};

/// A one-pass iterable. next() stores the following element and returns true, or returns false at the end.
struct GeneratorObject : Object {
  std::function<bool(Value&)> next;
};

struct NamespaceObject : Object {
  std::vector<std::pair<std::string, Value>> attributes;
  Value* find(std::string_view name);
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct CallableObject : Object {
  std::string name;
  bool is_macro = false;
  std::function<Value(Runtime&, Arguments&)> call;
};

/// cycler(...): `next` moves on, `current` and `reset` as in Jinja.
struct CyclerObject : Object {
  std::vector<Value> items;
  size_t position = 0;
};

/// Python's ==, !=: never an error. Throws RenderError only when the work limit ends.
bool equal(Runtime& runtime, const Value& a, const Value& b);
/// Python's < on numbers, strings, lists and tuples; RenderError for other pairs ("'<' not supported between ...").
/// Returns -1, 0, 1, or 2 when unordered (NaN). operation is the text used in the message.
int compare(Runtime& runtime, const Value& a, const Value& b, const char* operation);
size_t hash_value(Runtime& runtime, const Value& value);

/// str(value) and repr(value). A value whose Python text is an address in memory (a generator, a function) is an error.
std::string to_text(Runtime& runtime, const Value& value);
std::string to_repr(Runtime& runtime, const Value& value);
std::string repr_of_double(double value);
std::string repr_of_string(std::string_view text);

}  // namespace tokenmill::jinja
