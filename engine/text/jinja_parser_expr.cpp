// Expressions. Precedence from loose to tight: if-else, or, and, not, comparisons, + -, ~, * / // %, **, unary,
// postfix, filters and tests (jinja2 binds "~" tighter than "+").
#include <fmt/format.h>

#include <algorithm>

#include "engine/text/jinja_parser.h"

namespace tokenmill::jinja {

void Parser::deepen(Expr& node, const Expr* child) const {
  if (child == nullptr) return;
  node.depth = std::max(node.depth, child->depth + 1);
  if (node.depth > kMaxExprDepth)
    fail(node.line,
         fmt::format("an expression has more than {} levels; use {{% set %}} for parts of it", kMaxExprDepth));
}

void Parser::deepen(Expr& node, const ArgumentsExpr& arguments) const {
  for (const auto& argument : arguments.positional) deepen(node, argument.get());
  for (const auto& [name, argument] : arguments.named) deepen(node, argument.get());
  deepen(node, arguments.star.get());
  deepen(node, arguments.star_star.get());
}

template <typename Node>
ExprPtr Parser::finish(std::unique_ptr<Node> node, std::initializer_list<const Expr*> children) {
  for (const Expr* child : children) deepen(*node, child);
  return node;
}

bool Parser::at_tuple_end(std::string_view end_name) const {
  const Token& token = current();
  return token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd || is_operator(token, ")") ||
         (!end_name.empty() && is_name(token, end_name));
}

ExprPtr Parser::parse_tuple(bool with_conditional, std::string_view end_name, bool in_parentheses) {
  const int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_operator(",");
    if (at_tuple_end(end_name)) break;
    items.push_back(parse_expression(with_conditional));
    if (!is_operator(current(), ",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!in_parentheses) fail(current().line, fmt::format("expected an expression, found {}", describe(current())));
  }
  auto tuple = std::make_unique<SequenceExpr>(line, true);
  tuple->items = std::move(items);
  for (const auto& item : tuple->items) deepen(*tuple, item.get());
  return tuple;
}

ExprPtr Parser::parse_expression(bool with_conditional) {
  const Nesting nesting(*this);
  return with_conditional ? parse_conditional() : parse_or();
}

ExprPtr Parser::parse_conditional() {
  const int line = current().line;
  ExprPtr node = parse_or();
  while (skip_name("if")) {
    ExprPtr test = parse_or();
    ExprPtr otherwise = skip_name("else") ? parse_expression() : nullptr;
    auto made = std::make_unique<ConditionalExpr>(line, std::move(test), std::move(node), std::move(otherwise));
    const std::initializer_list<const Expr*> children = {made->test.get(), made->then.get(), made->otherwise.get()};
    node = finish(std::move(made), children);
  }
  return node;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (is_name(current(), "or")) {
    const int line = take().line;
    auto made = std::make_unique<LogicalExpr>(line, false, std::move(left), parse_and());
    const std::initializer_list<const Expr*> children = {made->left.get(), made->right.get()};
    left = finish(std::move(made), children);
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (is_name(current(), "and")) {
    const int line = take().line;
    auto made = std::make_unique<LogicalExpr>(line, true, std::move(left), parse_not());
    const std::initializer_list<const Expr*> children = {made->left.get(), made->right.get()};
    left = finish(std::move(made), children);
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!is_name(current(), "not")) return parse_compare();
  const Nesting nesting(*this);
  const int line = take().line;
  auto made = std::make_unique<NotExpr>(line, parse_not());
  const Expr* operand = made->operand.get();
  return finish(std::move(made), {operand});
}

ExprPtr Parser::parse_compare() {
  constexpr std::pair<std::string_view, CompareOperator> kOperators[] = {
      {"==", CompareOperator::kEqual},  {"!=", CompareOperator::kNotEqual},  {"<", CompareOperator::kLess},
      {">", CompareOperator::kGreater}, {"<=", CompareOperator::kLessEqual}, {">=", CompareOperator::kGreaterEqual}};
  const int line = current().line;
  ExprPtr first = parse_sum();
  std::unique_ptr<CompareExpr> node;
  while (true) {
    std::optional<CompareOperator> operation;
    for (const auto& [text, op] : kOperators)
      if (is_operator(current(), text)) operation = op;
    if (is_name(current(), "in")) operation = CompareOperator::kIn;
    if (is_name(current(), "not") && is_name(look(), "in")) {
      operation = CompareOperator::kNotIn;
      take();
    }
    if (!operation) break;
    take();
    if (node == nullptr) {
      node = std::make_unique<CompareExpr>(line, std::move(first));
      deepen(*node, node->first.get());
    }
    node->rest.emplace_back(*operation, parse_sum());
    deepen(*node, node->rest.back().second.get());
  }
  if (node != nullptr) return node;
  return first;
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (is_operator(current(), "+") || is_operator(current(), "-")) {
    const Token token = take();
    const auto operation = token.text == "+" ? BinaryOperator::kAdd : BinaryOperator::kSubtract;
    auto made = std::make_unique<BinaryExpr>(token.line, operation, std::move(left), parse_concat());
    const std::initializer_list<const Expr*> children = {made->left.get(), made->right.get()};
    left = finish(std::move(made), children);
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  const int line = current().line;
  ExprPtr first = parse_product();
  if (!is_operator(current(), "~")) return first;
  auto node = std::make_unique<ConcatExpr>(line);
  node->items.push_back(std::move(first));
  while (skip_operator("~")) node->items.push_back(parse_product());
  for (const auto& item : node->items) deepen(*node, item.get());
  return node;
}

ExprPtr Parser::parse_product() {
  constexpr std::pair<std::string_view, BinaryOperator> kOperators[] = {{"*", BinaryOperator::kMultiply},
                                                                        {"/", BinaryOperator::kDivide},
                                                                        {"//", BinaryOperator::kFloorDivide},
                                                                        {"%", BinaryOperator::kModulo}};
  ExprPtr left = parse_power();
  while (true) {
    std::optional<BinaryOperator> operation;
    for (const auto& [text, op] : kOperators)
      if (is_operator(current(), text)) operation = op;
    if (!operation) return left;
    const int line = take().line;
    auto made = std::make_unique<BinaryExpr>(line, *operation, std::move(left), parse_power());
    const std::initializer_list<const Expr*> children = {made->left.get(), made->right.get()};
    left = finish(std::move(made), children);
  }
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary();
  while (is_operator(current(), "**")) {
    const int line = take().line;
    auto made = std::make_unique<BinaryExpr>(line, BinaryOperator::kPower, std::move(left), parse_unary());
    const std::initializer_list<const Expr*> children = {made->left.get(), made->right.get()};
    left = finish(std::move(made), children);
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  ExprPtr node;
  if (is_operator(current(), "-") || is_operator(current(), "+")) {
    const Nesting nesting(*this);
    const Token sign = take();
    auto made = std::make_unique<SignExpr>(sign.line, sign.text == "-", parse_unary(false));
    const Expr* operand = made->operand.get();
    node = finish(std::move(made), {operand});
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filter_chain(std::move(node)) : std::move(node);
}

ExprPtr Parser::parse_name() {
  Token token = take();
  const std::string& text = token.text;
  if (text == "none" || text == "None") return std::make_unique<ConstantExpr>(token.line, ConstantExpr::Type::kNone);
  if (text == "true" || text == "True" || text == "false" || text == "False") {
    auto node = std::make_unique<ConstantExpr>(token.line, ConstantExpr::Type::kBool);
    node->boolean = text == "true" || text == "True";
    return node;
  }
  for (MacroDefinition* macro : macros_) {
    macro->uses_caller |= text == "caller";
    macro->uses_varargs |= text == "varargs";
    macro->uses_kwargs |= text == "kwargs";
  }
  names_.insert(text);
  return std::make_unique<NameExpr>(token.line, std::move(token.text));
}

ExprPtr Parser::parse_primary() {
  const Token& token = current();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::kName:
      return parse_name();
    case TokenKind::kString: {
      auto node = std::make_unique<ConstantExpr>(line, ConstantExpr::Type::kString);
      while (current().kind == TokenKind::kString) node->text += take().text;
      return node;
    }
    case TokenKind::kInteger: {
      auto node = std::make_unique<ConstantExpr>(line, ConstantExpr::Type::kInteger);
      node->integer = take().integer;
      return node;
    }
    case TokenKind::kFloat: {
      auto node = std::make_unique<ConstantExpr>(line, ConstantExpr::Type::kFloat);
      node->real = take().real;
      return node;
    }
    default:
      break;
  }
  if (skip_operator("(")) {
    ExprPtr node = parse_tuple(true, {}, true);
    expect_operator(")");
    return node;
  }
  if (is_operator(token, "[")) return parse_list();
  if (is_operator(token, "{")) return parse_dict();
  fail(line, fmt::format("expected an expression, found {}", describe(token)));
}

ExprPtr Parser::parse_list() {
  auto node = std::make_unique<SequenceExpr>(take().line, false);
  while (!is_operator(current(), "]")) {
    if (!node->items.empty()) expect_operator(",");
    if (is_operator(current(), "]")) break;
    node->items.push_back(parse_expression());
    deepen(*node, node->items.back().get());
  }
  take();
  return node;
}

ExprPtr Parser::parse_dict() {
  auto node = std::make_unique<DictExpr>(take().line);
  while (!is_operator(current(), "}")) {
    if (!node->entries.empty()) expect_operator(",");
    if (is_operator(current(), "}")) break;
    ExprPtr key = parse_expression();
    expect_operator(":");
    node->entries.emplace_back(std::move(key), parse_expression());
    deepen(*node, node->entries.back().first.get());
    deepen(*node, node->entries.back().second.get());
  }
  take();
  return node;
}

}  // namespace tokenmill::jinja
