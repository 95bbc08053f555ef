#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja_runtime.h"

/// The tree that the parser builds and the interpreter walks. Nodes own their children; depth is bounded by the parser.
namespace tokenmill::jinja {

enum class ExprKind : uint8_t {
  kConstant,
  kName,
  kSequence,
  kDict,
  kNot,
  kSign,
  kLogical,
  kBinary,
  kConcat,
  kCompare,
  kConditional,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
};

struct Expr {
  Expr(ExprKind expr_kind, int at_line) : kind(expr_kind), line(at_line) {}
  virtual ~Expr() = default;
  ExprKind kind;
  int line;
  int depth = 1;  ///< longest way down to a leaf
};
using ExprPtr = std::unique_ptr<Expr>;

/// A literal. Kept as plain data, since values are not for several threads.
struct ConstantExpr : Expr {
  enum class Type : uint8_t { kNone, kBool, kInteger, kFloat, kString };
  ConstantExpr(int at_line, Type value_type) : Expr(ExprKind::kConstant, at_line), type(value_type) {}
  Type type;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;
  std::string text;
};

struct NameExpr : Expr {
  NameExpr(int at_line, std::string variable) : Expr(ExprKind::kName, at_line), name(std::move(variable)) {}
  std::string name;
};

struct SequenceExpr : Expr {
  SequenceExpr(int at_line, bool tuple) : Expr(ExprKind::kSequence, at_line), is_tuple(tuple) {}
  bool is_tuple;
  std::vector<ExprPtr> items;
};

struct DictExpr : Expr {
  explicit DictExpr(int at_line) : Expr(ExprKind::kDict, at_line) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};

struct NotExpr : Expr {
  NotExpr(int at_line, ExprPtr inner) : Expr(ExprKind::kNot, at_line), operand(std::move(inner)) {}
  ExprPtr operand;
};

struct SignExpr : Expr {
  SignExpr(int at_line, bool negates, ExprPtr inner)
      : Expr(ExprKind::kSign, at_line), negative(negates), operand(std::move(inner)) {}
  bool negative;
  ExprPtr operand;
};

struct LogicalExpr : Expr {
  LogicalExpr(int at_line, bool both, ExprPtr a, ExprPtr b)
      : Expr(ExprKind::kLogical, at_line), is_and(both), left(std::move(a)), right(std::move(b)) {}
  bool is_and;
  ExprPtr left, right;
};

struct BinaryExpr : Expr {
  BinaryExpr(int at_line, BinaryOperator op, ExprPtr a, ExprPtr b)
      : Expr(ExprKind::kBinary, at_line), operation(op), left(std::move(a)), right(std::move(b)) {}
  BinaryOperator operation;
  ExprPtr left, right;
};

struct ConcatExpr : Expr {
  explicit ConcatExpr(int at_line) : Expr(ExprKind::kConcat, at_line) {}
  std::vector<ExprPtr> items;
};

enum class CompareOperator : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

/// first op1 e1 op2 e2 ...: every operand evaluated once, as in Python.
struct CompareExpr : Expr {
  CompareExpr(int at_line, ExprPtr leftmost) : Expr(ExprKind::kCompare, at_line), first(std::move(leftmost)) {}
  ExprPtr first;
  std::vector<std::pair<CompareOperator, ExprPtr>> rest;
};

struct ConditionalExpr : Expr {
  ConditionalExpr(int at_line, ExprPtr condition, ExprPtr if_true, ExprPtr if_false)
      : Expr(ExprKind::kConditional, at_line),
        test(std::move(condition)),
        then(std::move(if_true)),
        otherwise(std::move(if_false)) {}
  ExprPtr test, then, otherwise;  ///< otherwise may be null
};

struct AttributeExpr : Expr {
  AttributeExpr(int at_line, ExprPtr owner, std::string attribute)
      : Expr(ExprKind::kAttribute, at_line), object(std::move(owner)), name(std::move(attribute)) {}
  ExprPtr object;
  std::string name;
};

struct ItemExpr : Expr {
  ItemExpr(int at_line, ExprPtr owner, ExprPtr key)
      : Expr(ExprKind::kItem, at_line), object(std::move(owner)), index(std::move(key)) {}
  ExprPtr object, index;
};

struct SliceExpr : Expr {
  SliceExpr(int at_line, ExprPtr owner) : Expr(ExprKind::kSlice, at_line), object(std::move(owner)) {}
  ExprPtr object, start, stop, step;  ///< all but object may be null
};

struct ArgumentsExpr {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, star_star;  ///< *args, **kwargs; may be null
};

struct CallExpr : Expr {
  CallExpr(int at_line, ExprPtr function) : Expr(ExprKind::kCall, at_line), callee(std::move(function)) {}
  ExprPtr callee;
  ArgumentsExpr arguments;
};

struct FilterExpr : Expr {
  FilterExpr(int at_line, ExprPtr value) : Expr(ExprKind::kFilter, at_line), input(std::move(value)) {}
  ExprPtr input;  ///< null: the text of the enclosing filter or set block
  std::string name;
  FilterFunction function = nullptr;
  ArgumentsExpr arguments;
};

struct TestExpr : Expr {
  TestExpr(int at_line, ExprPtr value) : Expr(ExprKind::kTest, at_line), input(std::move(value)) {}
  ExprPtr input;
  std::string name;
  TestFunction function = nullptr;
  ArgumentsExpr arguments;
};

/// What can stand left of "=": a name, namespace.attribute, or a tuple of them.
struct Target {
  std::string name;
  std::string attribute;      ///< not empty: name.attribute
  std::vector<Target> items;  ///< is_tuple
  bool is_tuple = false;
  int line = 0;
};

enum class StatementKind : uint8_t {
  kOutput,
  kFor,
  kIf,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kGeneration,
  kBreak,
  kContinue,
};

struct Statement {
  Statement(StatementKind statement_kind, int at_line) : kind(statement_kind), line(at_line) {}
  virtual ~Statement() = default;
  StatementKind kind;
  int line;
};
using Body = std::vector<std::unique_ptr<Statement>>;

/// Text or an expression to print.
struct OutputStatement : Statement {
  explicit OutputStatement(int at_line) : Statement(StatementKind::kOutput, at_line) {}
  std::string text;
  ExprPtr expr;  ///< null: text
};

struct ForStatement : Statement {
  explicit ForStatement(int at_line) : Statement(StatementKind::kFor, at_line) {}
  Target target;
  ExprPtr iterable;
  ExprPtr test;  ///< may be null
  bool recursive = false;
  Body body;
  Body otherwise;
};

struct IfStatement : Statement {
  explicit IfStatement(int at_line) : Statement(StatementKind::kIf, at_line) {}
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};

struct SetStatement : Statement {
  explicit SetStatement(int at_line) : Statement(StatementKind::kSet, at_line) {}
  Target target;
  ExprPtr value;
};

struct SetBlockStatement : Statement {
  explicit SetBlockStatement(int at_line) : Statement(StatementKind::kSetBlock, at_line) {}
  Target target;
  ExprPtr filter;  ///< may be null
  Body body;
};

/// Parameters and body of a macro, or of a call block's `caller`.
struct MacroDefinition {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  ///< of the last parameters
  Body body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct MacroStatement : Statement {
  explicit MacroStatement(int at_line) : Statement(StatementKind::kMacro, at_line) {}
  MacroDefinition macro;
};

struct CallBlockStatement : Statement {
  explicit CallBlockStatement(int at_line) : Statement(StatementKind::kCallBlock, at_line) {}
  ExprPtr call;  ///< a CallExpr
  MacroDefinition caller;
};

struct FilterBlockStatement : Statement {
  explicit FilterBlockStatement(int at_line) : Statement(StatementKind::kFilterBlock, at_line) {}
  ExprPtr filter;
  Body body;
};

struct WithStatement : Statement {
  explicit WithStatement(int at_line) : Statement(StatementKind::kWith, at_line) {}
  std::vector<std::pair<Target, ExprPtr>> assignments;
  Body body;
};

/// {% generation %}: marks the assistant's text for training; here its body only.
struct GenerationStatement : Statement {
  explicit GenerationStatement(int at_line) : Statement(StatementKind::kGeneration, at_line) {}
  Body body;
};

struct JumpStatement : Statement {
  using Statement::Statement;
};

struct TemplateNode {
  Body body;
  std::set<std::string, std::less<>> names;  ///< that some expression reads: variables, functions, loop variables
};

}  // namespace tokenmill::jinja
