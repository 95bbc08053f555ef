#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja_ast.h"
#include "engine/text/jinja_loop.h"
#include "engine/text/jinja_runtime.h"

namespace tokenmill::jinja {

/// Variables of one block. Loops, macros, with, filter and captured blocks open one; if does not.
struct Scope {
  Scope* parent = nullptr;
  bool captured = false;  ///< a macro refers to it: it lives until the end of the rendering
  std::vector<std::pair<const std::string*, Value>> variables;  // names live in the tree or in the globals
};

/// Walks the tree once. Not reusable.
class Interpreter {
 public:
  Interpreter(Runtime& runtime, const Variables& variables);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string run(const TemplateNode& root);
  /// The line being executed when an error was thrown.
  int line() const { return line_; }

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  class ScopeGuard;
  class CaptureGuard;

  // Statements (jinja_interpreter.cpp, jinja_for.cpp, jinja_macro.cpp).
  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  void output(const OutputStatement& statement);
  Flow execute_if(const IfStatement& statement);
  Flow execute_set_block(const SetBlockStatement& statement);
  Flow execute_filter_block(const FilterBlockStatement& statement);
  Flow execute_with(const WithStatement& statement);
  Flow execute_for(const ForStatement& statement);
  Flow run_loop(const ForStatement& statement, const Value& iterable, int64_t depth0);
  std::function<bool(Value&)> loop_source(const ForStatement& statement, const Value& iterable, Scope* outer,
                                          LoopObject& loop);
  void assign(const Target& target, const Value& value);
  void assign_namespace(const Target& target, const Value& value);
  void check_namespaces(const Target& target);
  void write(std::string_view text);

  // Macros.
  Value make_macro(const MacroDefinition& macro);
  std::string call_macro(const MacroDefinition& macro, Scope* closure, Arguments& arguments);
  void bind_parameters(const MacroDefinition& macro, Arguments& arguments);
  void execute_call_block(const CallBlockStatement& statement);

  // Expressions (jinja_evaluate.cpp).
  Value evaluate(const Expr& expr);
  Value evaluate_node(const Expr& expr);
  Value constant(const ConstantExpr& expr);
  Value name(const NameExpr& expr);
  Value sequence(const SequenceExpr& expr);
  Value dict(const DictExpr& expr);
  Value logical(const LogicalExpr& expr);
  Value concat(const ConcatExpr& expr);
  Value compare_chain(const CompareExpr& expr);
  bool compare_pair(CompareOperator operation, const Value& left, const Value& right);
  Value conditional(const ConditionalExpr& expr);
  Value slice(const SliceExpr& expr);
  Value call(const CallExpr& expr, const Value* caller);
  Value filter(const FilterExpr& expr);
  Value test(const TestExpr& expr);
  Arguments arguments(const ArgumentsExpr& expr);

  // Scopes.
  Value* find_variable(const std::string& name);
  void set_variable(const std::string& name, Value value);
  Scope* open_scope(Scope* parent);
  void close_scope(Scope* scope);

  Runtime& runtime_;
  std::vector<std::pair<std::string, Value>> globals_;
  std::vector<std::unique_ptr<Scope>> open_;      // stack
  std::vector<std::unique_ptr<Scope>> captured_;  // closed, but a macro refers to them
  Scope* scope_ = nullptr;
  std::string* out_ = nullptr;
  const Value* block_text_ = nullptr;  // what a filter block's innermost filter takes
  int line_ = 0;
};

/// Opens a scope below `parent` and makes it current; puts the old one back at the end.
class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, Scope* parent) : interpreter_(interpreter), before_(interpreter.scope_) {
    scope_ = interpreter.open_scope(parent);
    interpreter.scope_ = scope_;
  }
  ~ScopeGuard() {
    interpreter_.scope_ = before_;
    interpreter_.close_scope(scope_);
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter& interpreter_;
  Scope* before_;
  Scope* scope_;
};

/// Sends output to a text of its own while it lives.
class Interpreter::CaptureGuard {
 public:
  explicit CaptureGuard(Interpreter& interpreter) : interpreter_(interpreter), before_(interpreter.out_) {
    interpreter.out_ = &text;
  }
  ~CaptureGuard() { interpreter_.out_ = before_; }
  CaptureGuard(const CaptureGuard&) = delete;
  CaptureGuard& operator=(const CaptureGuard&) = delete;

  std::string text;

 private:
  Interpreter& interpreter_;
  std::string* before_;
};

}  // namespace tokenmill::jinja
