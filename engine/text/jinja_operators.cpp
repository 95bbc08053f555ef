// Arithmetic with Python's meaning on integers, floats, strings and lists.
#include <fmt/format.h>

#include <cmath>

#include "engine/text/jinja_runtime.h"

namespace tokenmill::jinja {
namespace {

const char* symbol(BinaryOperator operation) {
  switch (operation) {
    case BinaryOperator::kAdd:
      return "+";
    case BinaryOperator::kSubtract:
      return "-";
    case BinaryOperator::kMultiply:
      return "*";
    case BinaryOperator::kDivide:
      return "/";
    case BinaryOperator::kFloorDivide:
      return "//";
    case BinaryOperator::kModulo:
      return "%";
    case BinaryOperator::kPower:
      return "**";
  }
  return "?";
}

[[noreturn]] void unsupported(BinaryOperator operation, const Value& left, const Value& right) {
  if (left.is_undefined()) throw RenderError(left.undefined_message());
  if (right.is_undefined()) throw RenderError(right.undefined_message());
  if (operation == BinaryOperator::kAdd && left.is_string())
    throw RenderError(fmt::format("can only concatenate str (not \"{}\") to str", right.type_name()));
  throw RenderError(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", symbol(operation),
                                left.type_name(), right.type_name()));
}

[[noreturn]] void overflow() { throw RenderError("integer overflow (integers here have 64 bits)"); }

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw RenderError("0.0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return Value::integer(result);
}

Value on_integers(BinaryOperator operation, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (operation) {
    case BinaryOperator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) overflow();
      return Value::integer(result);
    case BinaryOperator::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) overflow();
      return Value::integer(result);
    case BinaryOperator::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) overflow();
      return Value::integer(result);
    case BinaryOperator::kDivide:
      if (b == 0) throw RenderError("division by zero");
      return Value::real(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case BinaryOperator::kPower:
      return integer_power(a, b);
    default:
      break;
  }
  if (b == 0) throw RenderError("integer division or modulo by zero");
  if (b == -1) {  // INT64_MIN / -1 does not fit
    if (operation == BinaryOperator::kModulo) return Value::integer(0);
    if (__builtin_sub_overflow(int64_t{0}, a, &result)) overflow();
    return Value::integer(result);
  }
  const bool adjust = a % b != 0 && (a % b < 0) != (b < 0);
  return operation == BinaryOperator::kModulo ? Value::integer(a % b + (adjust ? b : 0))
                                              : Value::integer(a / b - (adjust ? 1 : 0));
}

// Python's float modulo takes the sign of the divisor.
double float_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

double float_floor_divide(double a, double b) {
  const double rest = float_modulo(a, b);
  const double quotient = (a - rest) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value on_floats(BinaryOperator operation, double a, double b) {
  switch (operation) {
    case BinaryOperator::kAdd:
      return Value::real(a + b);
    case BinaryOperator::kSubtract:
      return Value::real(a - b);
    case BinaryOperator::kMultiply:
      return Value::real(a * b);
    case BinaryOperator::kPower: {
      if (a == 0 && b < 0) throw RenderError("0.0 cannot be raised to a negative power");
      if (a < 0 && std::floor(b) != b) throw RenderError("complex numbers are not supported");
      const double result = std::pow(a, b);
      if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) throw RenderError("numerical result out of range");
      return Value::real(result);
    }
    default:
      break;
  }
  if (b == 0) throw RenderError("float division by zero");
  if (operation == BinaryOperator::kDivide) return Value::real(a / b);
  return Value::real(operation == BinaryOperator::kModulo ? float_modulo(a, b) : float_floor_divide(a, b));
}

Value repeat(Runtime& runtime, const Value& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  const auto times = static_cast<size_t>(count);
  if (value.is_string()) {
    const auto bytes = static_cast<int64_t>(value.text().size());
    int64_t total = 0;
    if (__builtin_mul_overflow(bytes, count, &total)) total = INT64_MAX - 8;
    runtime.charge_bytes(static_cast<size_t>(total));
    std::string text;
    if (bytes == 0) return runtime.string("");
    text.reserve(static_cast<size_t>(total));
    for (size_t i = 0; i < times; ++i) text += value.text();
    return runtime.string(std::move(text));
  }
  const auto& items = value.items();
  int64_t total = 0;
  if (__builtin_mul_overflow(static_cast<int64_t>(items.size()), count, &total)) total = INT64_MAX / 8;
  runtime.charge_items(static_cast<size_t>(std::min(total, INT64_MAX / 8)));
  std::vector<Value> out;
  for (size_t i = 0; i < times && !items.empty(); ++i) out.insert(out.end(), items.begin(), items.end());
  return runtime.sequence(value.kind(), std::move(out));
}

bool is_list_like(const Value& value) { return value.is(ValueKind::kList) || value.is(ValueKind::kTuple); }

}  // namespace

Value apply_binary(Runtime& runtime, BinaryOperator operation, const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) return on_integers(operation, left.as_int(), right.as_int());
  if (left.is_number() && right.is_number()) return on_floats(operation, left.as_double(), right.as_double());
  if (left.is(ValueKind::kBigInt) || right.is(ValueKind::kBigInt))
    if ((left.is(ValueKind::kBigInt) || left.is_number()) && (right.is(ValueKind::kBigInt) || right.is_number()))
      overflow();
  if (operation == BinaryOperator::kAdd) {
    if (left.is_string() && right.is_string()) {
      runtime.charge_bytes(left.text().size() + right.text().size());
      return runtime.string(left.text() + right.text());
    }
    if (is_list_like(left) && left.kind() == right.kind()) {
      runtime.charge_items(left.items().size() + right.items().size());
      std::vector<Value> items = left.items();
      items.insert(items.end(), right.items().begin(), right.items().end());
      return runtime.sequence(left.kind(), std::move(items));
    }
  }
  if (operation == BinaryOperator::kMultiply) {
    if ((left.is_string() || is_list_like(left)) && right.is_integral()) return repeat(runtime, left, right.as_int());
    if ((right.is_string() || is_list_like(right)) && left.is_integral()) return repeat(runtime, right, left.as_int());
  }
  if (operation == BinaryOperator::kModulo && left.is_string())
    return runtime.string(percent_format(runtime, left.text(), right));
  unsupported(operation, left, right);
}

Value apply_negative(Runtime&, const Value& operand) {
  if (operand.is(ValueKind::kFloat)) return Value::real(-operand.as_double());
  if (operand.is_integral()) {
    int64_t result = 0;
    if (__builtin_sub_overflow(int64_t{0}, operand.as_int(), &result)) overflow();
    return Value::integer(result);
  }
  if (operand.is_undefined()) throw RenderError(operand.undefined_message());
  throw RenderError(fmt::format("bad operand type for unary -: '{}'", operand.type_name()));
}

Value apply_positive(Runtime&, const Value& operand) {
  if (operand.is(ValueKind::kFloat)) return operand;
  if (operand.is_integral()) return Value::integer(operand.as_int());
  if (operand.is_undefined()) throw RenderError(operand.undefined_message());
  throw RenderError(fmt::format("bad operand type for unary +: '{}'", operand.type_name()));
}

}  // namespace tokenmill::jinja
