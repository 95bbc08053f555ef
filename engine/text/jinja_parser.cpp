#include "engine/text/jinja_parser.h"

#include <fmt/format.h>

#include <algorithm>

namespace tokenmill::jinja {

Token Parser::take() {
  Token token = std::move(tokens_[at_]);
  tokens_[at_].kind = token.kind;
  tokens_[at_].line = token.line;
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::is_operator(const Token& token, std::string_view text) {
  return token.kind == TokenKind::kOperator && token.text == text;
}

bool Parser::is_name(const Token& token, std::string_view text) {
  return token.kind == TokenKind::kName && token.text == text;
}

bool Parser::skip_operator(std::string_view text) {
  if (!is_operator(current(), text)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view text) {
  if (!is_name(current(), text)) return false;
  take();
  return true;
}

void Parser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) fail(current().line, fmt::format("expected '{}', found {}", text, describe(current())));
}

void Parser::expect_name(std::string_view text) {
  if (!skip_name(text)) fail(current().line, fmt::format("expected '{}', found {}", text, describe(current())));
}

std::string Parser::expect_identifier() {
  if (current().kind != TokenKind::kName)
    fail(current().line, fmt::format("expected a name, found {}", describe(current())));
  return take().text;
}

void Parser::expect_block_end() {
  if (current().kind != TokenKind::kBlockEnd)
    fail(current().line, fmt::format("expected '%}}', found {}", describe(current())));
  take();
}

TemplateNode Parser::parse() {
  TemplateNode root;
  root.body = parse_body("", 1, {});
  root.names = std::move(names_);
  return root;
}

// Statements up to one of the end tags, which is left as the current token. No end tags: up to the template's end.
Body Parser::parse_body(std::string_view tag, int line, std::initializer_list<std::string_view> ends) {
  const Nesting nesting(*this);
  Body body;
  while (current().kind != TokenKind::kEnd) {
    if (current().kind == TokenKind::kData || current().kind == TokenKind::kVariableBegin) {
      body.push_back(parse_output());
      continue;
    }
    take();  // {%
    for (const std::string_view end : ends)
      if (is_name(current(), end)) return body;
    body.push_back(parse_statement());
    expect_block_end();
  }
  if (ends.size() > 0) fail(current().line, fmt::format("'{}' of line {} has no '{}'", tag, line, *(ends.end() - 1)));
  return body;
}

// The body of a tag with one end tag, end tag included.
Body Parser::parse_block(std::string_view tag, int line, std::string_view end) {
  skip_operator(":");
  expect_block_end();
  Body body = parse_body(tag, line, {end});
  take();
  return body;
}

std::unique_ptr<Statement> Parser::parse_output() {
  auto output = std::make_unique<OutputStatement>(current().line);
  if (current().kind == TokenKind::kData) {
    output->text = take().text;
    return output;
  }
  take();
  output->line = current().line;
  output->expr = parse_tuple();
  if (current().kind != TokenKind::kVariableEnd)
    fail(current().line, fmt::format("expected '}}}}', found {}", describe(current())));
  take();
  return output;
}

std::unique_ptr<Statement> Parser::parse_statement() {
  if (current().kind != TokenKind::kName)
    fail(current().line, fmt::format("expected the name of a tag, found {}", describe(current())));
  const std::string& tag = current().text;
  if (tag == "for") return parse_for();
  if (tag == "if") return parse_if();
  if (tag == "set") return parse_set();
  if (tag == "macro") return parse_macro();
  if (tag == "call") return parse_call_block();
  if (tag == "filter") return parse_filter_block();
  if (tag == "with") return parse_with();
  if (tag == "generation") return parse_generation();
  if (tag == "break" || tag == "continue") return parse_jump();
  for (const std::string_view known :
       {"block", "extends", "print", "include", "from", "import", "autoescape", "do", "trans", "debug"})
    if (tag == known) fail(current().line, fmt::format("tag '{}' is not supported in chat templates", tag));
  for (const std::string_view inner : {"else", "elif", "endfor", "endif", "endset", "endmacro", "endcall", "endfilter",
                                       "endwith", "endgeneration", "endraw"})
    if (tag == inner) fail(current().line, fmt::format("'{}' does not close or continue the innermost open tag", tag));
  fail(current().line, fmt::format("unknown tag '{}'", tag));
}

std::unique_ptr<Statement> Parser::parse_for() {
  auto node = std::make_unique<ForStatement>(take().line);
  ++any_loops_;
  node->target = parse_target(false, "in");
  expect_name("in");
  node->iterable = parse_tuple(false, "recursive");
  if (skip_name("if")) node->test = parse_expression();
  node->recursive = skip_name("recursive");
  skip_operator(":");
  expect_block_end();
  ++loops_;
  node->body = parse_body("for", node->line, {"else", "endfor"});
  --loops_;
  if (take().text == "else") node->otherwise = parse_block("for", node->line, "endfor");
  --any_loops_;
  return node;
}

std::unique_ptr<Statement> Parser::parse_if() {
  auto node = std::make_unique<IfStatement>(take().line);
  while (true) {
    ExprPtr test = parse_tuple(false);
    skip_operator(":");
    expect_block_end();
    Body body = parse_body("if", node->line, {"elif", "else", "endif"});
    node->branches.emplace_back(std::move(test), std::move(body));
    const std::string tag = take().text;
    if (tag == "elif") continue;
    if (tag == "else") node->otherwise = parse_block("if", node->line, "endif");
    return node;
  }
}

std::unique_ptr<Statement> Parser::parse_set() {
  const int line = take().line;
  Target target = parse_target(true);
  if (skip_operator("=")) {
    auto node = std::make_unique<SetStatement>(line);
    node->target = std::move(target);
    node->value = parse_tuple();
    return node;
  }
  auto node = std::make_unique<SetBlockStatement>(line);
  node->target = std::move(target);
  while (is_operator(current(), "|")) {
    take();
    node->filter = parse_filter(std::move(node->filter));
  }
  node->body = parse_block("set", line, "endset");
  return node;
}

void Parser::parse_signature(MacroDefinition& macro) {
  expect_operator("(");
  while (!is_operator(current(), ")")) {
    if (!macro.parameters.empty()) expect_operator(",");
    const int line = current().line;
    if (macro.parameters.size() == kMaxArguments)
      fail(line, fmt::format("a macro has more than {} parameters", kMaxArguments));
    macro.parameters.push_back(expect_identifier());
    if (skip_operator("="))
      macro.defaults.push_back(parse_expression());
    else if (!macro.defaults.empty())
      fail(line, fmt::format("parameter '{}' without a default follows one with a default", macro.parameters.back()));
    if (std::count(macro.parameters.begin(), macro.parameters.end(), macro.parameters.back()) > 1)
      fail(line, fmt::format("parameter '{}' is named twice", macro.parameters.back()));
  }
  take();
}

void Parser::parse_macro_body(MacroDefinition& macro, std::string_view tag, int line, std::string_view end) {
  const int loops = std::exchange(loops_, 0);
  macros_.push_back(&macro);
  macro.body = parse_block(tag, line, end);
  macros_.pop_back();
  loops_ = loops;
}

std::unique_ptr<Statement> Parser::parse_macro() {
  auto node = std::make_unique<MacroStatement>(take().line);
  node->macro.name = expect_identifier();
  parse_signature(node->macro);
  parse_macro_body(node->macro, "macro", node->line, "endmacro");
  return node;
}

std::unique_ptr<Statement> Parser::parse_call_block() {
  auto node = std::make_unique<CallBlockStatement>(take().line);
  node->caller.name = "caller";
  if (is_operator(current(), "(")) parse_signature(node->caller);
  node->call = parse_expression();
  if (node->call->kind != ExprKind::kCall) fail(node->line, "a call block needs a call: {% call name(...) %}");
  parse_macro_body(node->caller, "call", node->line, "endcall");
  return node;
}

std::unique_ptr<Statement> Parser::parse_filter_block() {
  auto node = std::make_unique<FilterBlockStatement>(take().line);
  node->filter = parse_filter(nullptr);
  while (skip_operator("|")) node->filter = parse_filter(std::move(node->filter));
  node->body = parse_block("filter", node->line, "endfilter");
  return node;
}

std::unique_ptr<Statement> Parser::parse_with() {
  auto node = std::make_unique<WithStatement>(take().line);
  while (current().kind != TokenKind::kBlockEnd && !is_operator(current(), ":")) {
    if (!node->assignments.empty()) expect_operator(",");
    Target target = parse_target(false);
    expect_operator("=");
    node->assignments.emplace_back(std::move(target), parse_expression());
  }
  node->body = parse_block("with", node->line, "endwith");
  return node;
}

std::unique_ptr<Statement> Parser::parse_generation() {
  auto node = std::make_unique<GenerationStatement>(take().line);
  const int loops = std::exchange(loops_, 0);  // a scope of its own, as a macro's
  node->body = parse_block("generation", node->line, "endgeneration");
  loops_ = loops;
  return node;
}

std::unique_ptr<Statement> Parser::parse_jump() {
  const Token tag = take();
  if (loops_ == 0) fail(tag.line, fmt::format("'{}' stands outside of a for loop", tag.text));
  return std::make_unique<JumpStatement>(tag.text == "break" ? StatementKind::kBreak : StatementKind::kContinue,
                                         tag.line);
}

Target Parser::parse_target_item(bool with_namespace) {
  const Nesting nesting(*this);
  if (skip_operator("(")) {
    Target target;
    target.is_tuple = true;
    target.line = current().line;
    bool comma = false;
    while (!is_operator(current(), ")")) {
      target.items.push_back(parse_target_item(false));
      comma = skip_operator(",");
      if (!comma) break;
    }
    expect_operator(")");
    if (target.items.size() == 1 && !comma) return std::move(target.items[0]);
    return target;
  }
  Target target;
  target.line = current().line;
  if (current().kind != TokenKind::kName) fail(current().line, fmt::format("can't assign to {}", describe(current())));
  target.name = take().text;
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"})
    if (target.name == constant) fail(target.line, fmt::format("can't assign to '{}'", target.name));
  if (target.name == "loop" && any_loops_ > 0)
    fail(target.line, "can't assign to the special variable 'loop' inside a for loop");
  if (with_namespace && skip_operator(".")) target.attribute = expect_identifier();
  return target;
}

Target Parser::parse_target(bool with_namespace, std::string_view end_name) {
  Target tuple;
  tuple.is_tuple = true;
  tuple.line = current().line;
  tuple.items.push_back(parse_target_item(with_namespace));
  bool comma = false;
  while (skip_operator(",")) {
    comma = true;
    if (at_tuple_end(end_name)) break;
    tuple.items.push_back(parse_target_item(with_namespace));
  }
  return comma ? std::move(tuple) : std::move(tuple.items[0]);
}

}  // namespace tokenmill::jinja
