// What may stand behind "is".
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "engine/text/jinja_runtime.h"
#include "engine/text/jinja_unicode.h"

namespace tokenmill::jinja {
namespace {

template <ValueKind kind>
bool is_kind(Runtime&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "test", {});
  return value.is(kind);
}

bool test_defined(Runtime&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "defined", {});
  return !value.is_undefined();
}

bool test_true(Runtime&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "true", {});
  return value.is(ValueKind::kBool) && value.as_bool();
}

bool test_false(Runtime&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "false", {});
  return value.is(ValueKind::kBool) && !value.as_bool();
}

bool test_integer(Runtime&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "integer", {});
  return value.is(ValueKind::kInt) || value.is(ValueKind::kBigInt);
}

bool test_number(Runtime&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "number", {});
  return value.is_number() || value.is(ValueKind::kBigInt);
}

bool test_sequence(Runtime&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "sequence", {});
  return value.is_undefined() || value.is_string() || value.is_dict() || value.is(ValueKind::kList) ||
         value.is(ValueKind::kTuple) || value.is(ValueKind::kRange);
}

bool test_iterable(Runtime&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "iterable", {});
  return is_iterable(value);
}

bool test_callable(Runtime&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "callable", {});
  return value.is(ValueKind::kCallable) || value.is(ValueKind::kLoop) || value.is_undefined();
}

bool test_escaped(Runtime&, const Value&, const Arguments& arguments) {
  const Bound bound(arguments, "escaped", {});
  return false;
}

template <bool upper>
bool test_case(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, upper ? "upper" : "lower", {});
  const std::string text = to_text(runtime, value);
  bool cased = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (is_title(c) || (upper ? is_lower(c) : is_upper(c))) return false;
    cased = cased || (upper ? is_upper(c) : is_lower(c));
  }
  return cased;
}

bool modulo_is(Runtime& runtime, const Value& value, const Value& divisor, int64_t rest) {
  if (value.is_undefined()) throw RenderError(value.undefined_message());
  if (value.is_string()) throw RenderError("not all arguments converted during string formatting");
  return equal(runtime, apply_binary(runtime, BinaryOperator::kModulo, value, divisor), Value::integer(rest));
}

bool test_odd(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "odd", {});
  return modulo_is(runtime, value, Value::integer(2), 1);
}

bool test_even(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "even", {});
  return modulo_is(runtime, value, Value::integer(2), 0);
}

bool test_divisibleby(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "divisibleby", {"num"}, 1);
  return modulo_is(runtime, value, *bound[0], 0);
}

bool test_equal(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "eq", {"other"}, 1);
  return equal(runtime, value, *bound[0]);
}

bool test_not_equal(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "ne", {"other"}, 1);
  return !equal(runtime, value, *bound[0]);
}

template <int first, int second>
bool test_order(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "comparison", {"other"}, 1);
  const int order = compare(runtime, value, *bound[0], first < 0 ? "<" : ">");
  return order == first || order == second;
}

bool test_in(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "in", {"seq"}, 1);
  return contains(runtime, *bound[0], value);
}

bool test_sameas(Runtime&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "sameas", {"other"}, 1);
  const Value& other = *bound[0];
  if (value.kind() != other.kind()) return false;
  if (value.is_none()) return true;
  if (value.is_integral()) return value.as_int() == other.as_int();
  return value.object() != nullptr && value.object() == other.object();
}

bool test_filter(Runtime&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "filter", {});
  return value.is_string() && find_filter(value.text()) != nullptr;
}

bool test_test(Runtime&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "test", {});
  return value.is_string() && find_test(value.text()) != nullptr;
}

struct Entry {
  std::string_view name;
  TestFunction function;
};

constexpr Entry kTests[] = {
    {"odd", test_odd},
    {"even", test_even},
    {"divisibleby", test_divisibleby},
    {"defined", test_defined},
    {"undefined", is_kind<ValueKind::kUndefined>},
    {"filter", test_filter},
    {"test", test_test},
    {"none", is_kind<ValueKind::kNone>},
    {"boolean", is_kind<ValueKind::kBool>},
    {"false", test_false},
    {"true", test_true},
    {"integer", test_integer},
    {"float", is_kind<ValueKind::kFloat>},
    {"lower", test_case<false>},
    {"upper", test_case<true>},
    {"string", is_kind<ValueKind::kString>},
    {"mapping", is_kind<ValueKind::kDict>},
    {"number", test_number},
    {"sequence", test_sequence},
    {"iterable", test_iterable},
    {"callable", test_callable},
    {"sameas", test_sameas},
    {"escaped", test_escaped},
    {"in", test_in},
    {"==", test_equal},
    {"eq", test_equal},
    {"equalto", test_equal},
    {"!=", test_not_equal},
    {"ne", test_not_equal},
    {">", test_order<1, 1>},
    {"gt", test_order<1, 1>},
    {"greaterthan", test_order<1, 1>},
    {">=", test_order<1, 0>},
    {"ge", test_order<1, 0>},
    {"<", test_order<-1, -1>},
    {"lt", test_order<-1, -1>},
    {"lessthan", test_order<-1, -1>},
    {"<=", test_order<-1, 0>},
    {"le", test_order<-1, 0>},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const Entry& entry) { return entry.name == name; });
  return found == std::end(kTests) ? nullptr : found->function;
}

}  // namespace tokenmill::jinja
