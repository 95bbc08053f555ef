#pragma once
#include <functional>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja_ast.h"
#include "engine/text/jinja_lexer.h"

namespace tokenmill::jinja {

/// Tags and brackets inside each other, at most: bounds the parser's stack.
inline constexpr int kMaxNesting = 200;
/// Arguments of one call, parameters of one macro, at most (as in Python).
inline constexpr size_t kMaxArguments = 255;
/// Height of one expression's tree, at most: bounds the interpreter's and the destructor's stack.
inline constexpr int kMaxExprDepth = 500;

/// Builds the tree by recursive descent, with jinja2's grammar and precedence. Every failure is Error(kConfig).
class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& name) : tokens_(std::move(tokens)), name_(name) {}
  TemplateNode parse();

 private:
  class Nesting;

  // Tokens (jinja_parser.cpp).
  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  static bool is_operator(const Token& token, std::string_view text);
  static bool is_name(const Token& token, std::string_view text);
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_operator(std::string_view text);
  void expect_name(std::string_view text);
  std::string expect_identifier();
  void expect_block_end();
  [[noreturn]] void fail(int line, const std::string& text) const { fail_parse(name_, line, text); }

  // Statements (jinja_parser.cpp).
  Body parse_body(std::string_view tag, int line, std::initializer_list<std::string_view> ends);
  Body parse_block(std::string_view tag, int line, std::string_view end);
  std::unique_ptr<Statement> parse_statement();
  std::unique_ptr<Statement> parse_output();
  std::unique_ptr<Statement> parse_for();
  std::unique_ptr<Statement> parse_if();
  std::unique_ptr<Statement> parse_set();
  std::unique_ptr<Statement> parse_macro();
  std::unique_ptr<Statement> parse_call_block();
  std::unique_ptr<Statement> parse_filter_block();
  std::unique_ptr<Statement> parse_with();
  std::unique_ptr<Statement> parse_generation();
  std::unique_ptr<Statement> parse_jump();
  void parse_signature(MacroDefinition& macro);
  void parse_macro_body(MacroDefinition& macro, std::string_view tag, int line, std::string_view end);
  Target parse_target(bool with_namespace, std::string_view end_name = {});
  Target parse_target_item(bool with_namespace);

  // Expressions (jinja_parser_expr.cpp).
  ExprPtr parse_tuple(bool with_conditional = true, std::string_view end_name = {}, bool in_parentheses = false);
  ExprPtr parse_expression(bool with_conditional = true);
  ExprPtr parse_conditional();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter = true);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filter_chain(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_bracket(ExprPtr node, int line);
  ExprPtr parse_call(ExprPtr node);
  ExprPtr parse_filter(ExprPtr node);
  ExprPtr parse_test(ExprPtr node);
  void parse_arguments(ArgumentsExpr& arguments);
  bool at_tuple_end(std::string_view end_name) const;
  /// Sets node->depth from its children and refuses trees that are too high.
  template <typename Node>
  ExprPtr finish(std::unique_ptr<Node> node, std::initializer_list<const Expr*> children);
  void deepen(Expr& node, const Expr* child) const;
  void deepen(Expr& node, const ArgumentsExpr& arguments) const;

  std::vector<Token> tokens_;
  std::string name_;
  size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;                         ///< for bodies around the current place, within the innermost macro
  int any_loops_ = 0;                     ///< the same, counted through macros
  std::vector<MacroDefinition*> macros_;  ///< macros around the current place
  std::set<std::string, std::less<>> names_;  ///< that an expression so far reads
};

/// Counts one level of nesting while it lives.
class Parser::Nesting {
 public:
  explicit Nesting(Parser& parser) : parser_(parser) {
    if (++parser_.nesting_ > kMaxNesting) {
      --parser_.nesting_;
      parser_.fail(parser_.current().line, "tags and brackets are nested too deeply");
    }
  }
  ~Nesting() { --parser_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Parser& parser_;
};

}  // namespace tokenmill::jinja
