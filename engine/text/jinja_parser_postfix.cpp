// What follows a value: .name, [index], [slice], (call), | filter, is test.
#include <fmt/format.h>

#include "engine/text/jinja_parser.h"

namespace tokenmill::jinja {

ExprPtr Parser::parse_postfix(ExprPtr node) {
  while (true) {
    if (is_operator(current(), ".") || is_operator(current(), "["))
      node = parse_subscript(std::move(node));
    else if (is_operator(current(), "("))
      node = parse_call(std::move(node));
    else
      return node;
  }
}

ExprPtr Parser::parse_filter_chain(ExprPtr node) {
  while (true) {
    if (skip_operator("|"))
      node = parse_filter(std::move(node));
    else if (is_name(current(), "is"))
      node = parse_test(std::move(node));
    else if (is_operator(current(), "("))
      node = parse_call(std::move(node));
    else
      return node;
  }
}

ExprPtr Parser::parse_subscript(ExprPtr node) {
  const Token token = take();
  if (token.text == "[") return parse_bracket(std::move(node), token.line);
  if (current().kind == TokenKind::kName) {
    auto made = std::make_unique<AttributeExpr>(token.line, std::move(node), take().text);
    deepen(*made, made->object.get());
    return made;
  }
  if (current().kind != TokenKind::kInteger)
    fail(current().line, fmt::format("expected a name or a number after '.', found {}", describe(current())));
  auto index = std::make_unique<ConstantExpr>(token.line, ConstantExpr::Type::kInteger);
  index->integer = take().integer;
  auto made = std::make_unique<ItemExpr>(token.line, std::move(node), std::move(index));
  deepen(*made, made->object.get());
  return made;
}

// After "[": one index, a slice, or a tuple of indices.
ExprPtr Parser::parse_bracket(ExprPtr node, int line) {
  const auto at_end = [&] { return is_operator(current(), "]") || is_operator(current(), ","); };
  ExprPtr first = is_operator(current(), ":") || is_operator(current(), "]") ? nullptr : parse_expression();
  if (skip_operator(":")) {
    auto slice = std::make_unique<SliceExpr>(line, std::move(node));
    slice->start = std::move(first);
    if (!at_end() && !is_operator(current(), ":")) slice->stop = parse_expression();
    if (skip_operator(":") && !at_end()) slice->step = parse_expression();
    if (is_operator(current(), ",")) fail(line, "several slices in one [] are not supported");
    expect_operator("]");
    for (const ExprPtr* part : {&slice->object, &slice->start, &slice->stop, &slice->step}) deepen(*slice, part->get());
    return slice;
  }
  if (first == nullptr || is_operator(current(), ",")) {
    auto tuple = std::make_unique<SequenceExpr>(line, true);
    if (first != nullptr) tuple->items.push_back(std::move(first));
    while (!is_operator(current(), "]")) {
      expect_operator(",");
      tuple->items.push_back(parse_expression());
      if (is_operator(current(), ":")) fail(line, "several slices in one [] are not supported");
    }
    for (const auto& item : tuple->items) deepen(*tuple, item.get());
    first = std::move(tuple);
  }
  expect_operator("]");
  auto made = std::make_unique<ItemExpr>(line, std::move(node), std::move(first));
  deepen(*made, made->object.get());
  deepen(*made, made->index.get());
  return made;
}

void Parser::parse_arguments(ArgumentsExpr& arguments) {
  const int line = current().line;
  expect_operator("(");
  bool first = true;
  const auto order = [&](bool good) {
    if (!good) fail(line, "arguments of a call must come in this order: values, name=value, *list, **dict");
  };
  while (!is_operator(current(), ")")) {
    if (!first) {
      expect_operator(",");
      if (is_operator(current(), ")")) break;
    }
    first = false;
    if (arguments.positional.size() + arguments.named.size() >= kMaxArguments)
      fail(line, fmt::format("a call has more than {} arguments", kMaxArguments));
    if (skip_operator("*")) {
      order(arguments.star == nullptr && arguments.star_star == nullptr);
      arguments.star = parse_expression();
    } else if (skip_operator("**")) {
      order(arguments.star_star == nullptr);
      arguments.star_star = parse_expression();
    } else if (current().kind == TokenKind::kName && is_operator(look(), "=")) {
      order(arguments.star_star == nullptr);
      std::string name = take().text;
      take();
      for (const auto& [other, value] : arguments.named)
        if (other == name) fail(line, fmt::format("argument '{}' is given twice", name));
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else {
      order(arguments.star == nullptr && arguments.star_star == nullptr && arguments.named.empty());
      arguments.positional.push_back(parse_expression());
    }
  }
  take();
}

ExprPtr Parser::parse_call(ExprPtr node) {
  auto call = std::make_unique<CallExpr>(current().line, std::move(node));
  parse_arguments(call->arguments);
  deepen(*call, call->callee.get());
  deepen(*call, call->arguments);
  if (call->callee->kind == ExprKind::kAttribute) {
    const std::string& method = static_cast<const AttributeExpr&>(*call->callee).name;
    if (is_missing_string_method(method))
      fail(call->line, fmt::format("method '{}' of strings is not supported", method));
  }
  return call;
}

ExprPtr Parser::parse_filter(ExprPtr node) {
  const int line = current().line;
  std::string name = expect_identifier();
  while (skip_operator(".")) name += "." + expect_identifier();
  auto filter = std::make_unique<FilterExpr>(line, std::move(node));
  filter->function = find_filter(name);
  if (filter->function == nullptr) fail(line, fmt::format("filter '{}' is not supported", name));
  filter->name = std::move(name);
  if (is_operator(current(), "(")) parse_arguments(filter->arguments);
  deepen(*filter, filter->input.get());
  deepen(*filter, filter->arguments);
  return filter;
}

ExprPtr Parser::parse_test(ExprPtr node) {
  const int line = take().line;
  const bool negated = skip_name("not");
  std::string name = expect_identifier();
  while (skip_operator(".")) name += "." + expect_identifier();
  auto test = std::make_unique<TestExpr>(line, std::move(node));
  test->function = find_test(name);
  if (test->function == nullptr) fail(line, fmt::format("test '{}' is not supported", name));
  test->name = std::move(name);
  const Token& next = current();
  const bool literal = next.kind == TokenKind::kString || next.kind == TokenKind::kInteger ||
                       next.kind == TokenKind::kFloat || is_operator(next, "[") || is_operator(next, "{");
  const bool word = next.kind == TokenKind::kName && next.text != "else" && next.text != "or" && next.text != "and";
  if (is_operator(next, "(")) {
    parse_arguments(test->arguments);
  } else if (word || literal) {
    if (is_name(next, "is")) fail(next.line, "tests cannot be chained with 'is'");
    test->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  deepen(*test, test->input.get());
  deepen(*test, test->arguments);
  if (!negated) return test;
  auto made = std::make_unique<NotExpr>(line, std::move(test));
  deepen(*made, made->operand.get());
  return made;
}

}  // namespace tokenmill::jinja
