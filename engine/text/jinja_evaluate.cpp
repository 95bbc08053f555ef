#include <fmt/format.h>

#include "engine/text/jinja_interpreter.h"
#include "kernels/core/check.h"

namespace tokenmill::jinja {

Value Interpreter::evaluate(const Expr& expr) {
  const DepthGuard guard(runtime_);
  runtime_.charge(1);
  line_ = expr.line;
  return evaluate_node(expr);
}

Value Interpreter::evaluate_node(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConstant:
      return constant(static_cast<const ConstantExpr&>(expr));
    case ExprKind::kName:
      return name(static_cast<const NameExpr&>(expr));
    case ExprKind::kSequence:
      return sequence(static_cast<const SequenceExpr&>(expr));
    case ExprKind::kDict:
      return dict(static_cast<const DictExpr&>(expr));
    case ExprKind::kNot:
      return Value::boolean(!evaluate(*static_cast<const NotExpr&>(expr).operand).truthy());
    case ExprKind::kSign: {
      const auto& node = static_cast<const SignExpr&>(expr);
      const Value operand = evaluate(*node.operand);
      return node.negative ? apply_negative(runtime_, operand) : apply_positive(runtime_, operand);
    }
    case ExprKind::kLogical:
      return logical(static_cast<const LogicalExpr&>(expr));
    case ExprKind::kBinary: {
      const auto& node = static_cast<const BinaryExpr&>(expr);
      const Value left = evaluate(*node.left);
      return apply_binary(runtime_, node.operation, left, evaluate(*node.right));
    }
    case ExprKind::kConcat:
      return concat(static_cast<const ConcatExpr&>(expr));
    case ExprKind::kCompare:
      return compare_chain(static_cast<const CompareExpr&>(expr));
    case ExprKind::kConditional:
      return conditional(static_cast<const ConditionalExpr&>(expr));
    case ExprKind::kAttribute: {
      const auto& node = static_cast<const AttributeExpr&>(expr);
      return get_attribute(runtime_, evaluate(*node.object), node.name);
    }
    case ExprKind::kItem: {
      const auto& node = static_cast<const ItemExpr&>(expr);
      const Value object = evaluate(*node.object);
      return get_item(runtime_, object, evaluate(*node.index));
    }
    case ExprKind::kSlice:
      return slice(static_cast<const SliceExpr&>(expr));
    case ExprKind::kCall:
      return call(static_cast<const CallExpr&>(expr), nullptr);
    case ExprKind::kFilter:
      return filter(static_cast<const FilterExpr&>(expr));
    case ExprKind::kTest:
      return test(static_cast<const TestExpr&>(expr));
  }
  return {};
}

Value Interpreter::constant(const ConstantExpr& expr) {
  switch (expr.type) {
    case ConstantExpr::Type::kNone:
      return {};
    case ConstantExpr::Type::kBool:
      return Value::boolean(expr.boolean);
    case ConstantExpr::Type::kInteger:
      return Value::integer(expr.integer);
    case ConstantExpr::Type::kFloat:
      return Value::real(expr.real);
    case ConstantExpr::Type::kString:
      return runtime_.string(expr.text);
  }
  return {};
}

Value Interpreter::name(const NameExpr& expr) {
  if (const Value* value = find_variable(expr.name)) return *value;
  return Value::undefined(fmt::format("'{}' is undefined", expr.name));
}

Value Interpreter::sequence(const SequenceExpr& expr) {
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const auto& item : expr.items) items.push_back(evaluate(*item));
  return runtime_.sequence(expr.is_tuple ? ValueKind::kTuple : ValueKind::kList, std::move(items));
}

Value Interpreter::dict(const DictExpr& expr) {
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [key, value] : expr.entries) {
    Value name = evaluate(*key);
    entries.emplace_back(std::move(name), evaluate(*value));
  }
  return runtime_.dict(std::move(entries));
}

Value Interpreter::logical(const LogicalExpr& expr) {
  Value left = evaluate(*expr.left);
  return left.truthy() == expr.is_and ? evaluate(*expr.right) : left;
}

Value Interpreter::concat(const ConcatExpr& expr) {
  std::string text;
  for (const auto& item : expr.items) text += to_text(runtime_, evaluate(*item));
  return runtime_.string(std::move(text));
}

bool Interpreter::compare_pair(CompareOperator operation, const Value& left, const Value& right) {
  switch (operation) {
    case CompareOperator::kEqual:
      return equal(runtime_, left, right);
    case CompareOperator::kNotEqual:
      return !equal(runtime_, left, right);
    case CompareOperator::kLess:
      return compare(runtime_, left, right, "<") == -1;
    case CompareOperator::kLessEqual: {
      const int order = compare(runtime_, left, right, "<=");
      return order == -1 || order == 0;
    }
    case CompareOperator::kGreater:
      return compare(runtime_, left, right, ">") == 1;
    case CompareOperator::kGreaterEqual: {
      const int order = compare(runtime_, left, right, ">=");
      return order == 1 || order == 0;
    }
    case CompareOperator::kIn:
      return contains(runtime_, right, left);
    case CompareOperator::kNotIn:
      return !contains(runtime_, right, left);
  }
  return false;
}

Value Interpreter::compare_chain(const CompareExpr& expr) {
  Value left = evaluate(*expr.first);
  for (const auto& [operation, operand] : expr.rest) {
    Value right = evaluate(*operand);
    if (!compare_pair(operation, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::conditional(const ConditionalExpr& expr) {
  if (evaluate(*expr.test).truthy()) return evaluate(*expr.then);
  if (expr.otherwise != nullptr) return evaluate(*expr.otherwise);
  return Value::undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.", expr.line));
}

Value Interpreter::slice(const SliceExpr& expr) {
  const Value object = evaluate(*expr.object);
  Value parts[3];
  const Value* given[3] = {};
  const Expr* sources[3] = {expr.start.get(), expr.stop.get(), expr.step.get()};
  for (int i = 0; i < 3; ++i)
    if (sources[i] != nullptr) {
      parts[i] = evaluate(*sources[i]);
      given[i] = &parts[i];
    }
  return get_slice(runtime_, object, given[0], given[1], given[2]);
}

Arguments Interpreter::arguments(const ArgumentsExpr& expr) {
  Arguments out;
  for (const auto& argument : expr.positional) out.positional.push_back(evaluate(*argument));
  for (const auto& [name, argument] : expr.named) out.named.emplace_back(name, evaluate(*argument));
  if (expr.star != nullptr)
    for (Value& value : to_vector(runtime_, evaluate(*expr.star))) out.positional.push_back(std::move(value));
  if (expr.star_star != nullptr) {
    const Value mapping = evaluate(*expr.star_star);
    if (!mapping.is_dict())
      throw RenderError(fmt::format("argument after ** must be a dict, not {}", mapping.type_name()));
    for (const auto& [key, value] : mapping.get<DictObject>().entries) {
      if (!key.is_string()) throw RenderError("keywords must be strings");
      for (const auto& [name, argument] : expr.named)
        if (name == key.text())
          throw RenderError(fmt::format("got multiple values for keyword argument '{}'", key.text()));
      out.named.emplace_back(key.text(), value);
    }
  }
  return out;
}

Value Interpreter::call(const CallExpr& expr, const Value* caller) {
  const Value callee = evaluate(*expr.callee);
  Arguments given = arguments(expr.arguments);
  if (caller != nullptr) given.named.emplace_back("caller", *caller);
  line_ = expr.line;
  return call_value(runtime_, callee, given);
}

Value Interpreter::filter(const FilterExpr& expr) {
  if (expr.input == nullptr) TM_ASSERT(block_text_ != nullptr);
  const Value input = expr.input == nullptr ? *block_text_ : evaluate(*expr.input);
  const Arguments given = arguments(expr.arguments);
  line_ = expr.line;
  return expr.function(runtime_, input, given);
}

Value Interpreter::test(const TestExpr& expr) {
  const Value input = evaluate(*expr.input);
  const Arguments given = arguments(expr.arguments);
  line_ = expr.line;
  return Value::boolean(expr.function(runtime_, input, given));
}

}  // namespace tokenmill::jinja
