// Whether a template loops over the parts of a message's content: the search of vLLM's content-format detection.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/chat_template.h"
#include "engine/text/jinja_ast.h"

namespace tokenmill::text {
namespace {

using jinja::Body;
using jinja::Expr;
using jinja::ExprKind;
using jinja::StatementKind;

constexpr size_t kMaxNames = 64;  // names followed, at most: bounds the search

void walk(const Body& body, const std::function<void(const jinja::Statement&)>& visit);

void walk_inside(const jinja::Statement& statement, const std::function<void(const jinja::Statement&)>& visit) {
  switch (statement.kind) {
    case StatementKind::kFor: {
      const auto& node = static_cast<const jinja::ForStatement&>(statement);
      walk(node.body, visit);
      walk(node.otherwise, visit);
      break;
    }
    case StatementKind::kIf: {
      const auto& node = static_cast<const jinja::IfStatement&>(statement);
      for (const auto& [test, body] : node.branches) walk(body, visit);
      walk(node.otherwise, visit);
      break;
    }
    case StatementKind::kSetBlock:
      walk(static_cast<const jinja::SetBlockStatement&>(statement).body, visit);
      break;
    case StatementKind::kMacro:
      walk(static_cast<const jinja::MacroStatement&>(statement).macro.body, visit);
      break;
    case StatementKind::kCallBlock:
      walk(static_cast<const jinja::CallBlockStatement&>(statement).caller.body, visit);
      break;
    case StatementKind::kFilterBlock:
      walk(static_cast<const jinja::FilterBlockStatement&>(statement).body, visit);
      break;
    case StatementKind::kWith:
      walk(static_cast<const jinja::WithStatement&>(statement).body, visit);
      break;
    case StatementKind::kGeneration:
      walk(static_cast<const jinja::GenerationStatement&>(statement).body, visit);
      break;
    default:
      break;
  }
}

void walk(const Body& body, const std::function<void(const jinja::Statement&)>& visit) {
  for (const auto& statement : body) {
    visit(*statement);
    walk_inside(*statement, visit);
  }
}

bool is_name(const Expr& expr, std::string_view name) {
  return expr.kind == ExprKind::kName && static_cast<const jinja::NameExpr&>(expr).name == name;
}

// name.key or name["key"]
bool is_member(const Expr& expr, std::string_view name, std::string_view key) {
  if (expr.kind == ExprKind::kAttribute) {
    const auto& node = static_cast<const jinja::AttributeExpr&>(expr);
    return node.name == key && is_name(*node.object, name);
  }
  if (expr.kind != ExprKind::kItem) return false;
  const auto& node = static_cast<const jinja::ItemExpr&>(expr);
  if (node.index->kind != ExprKind::kConstant || !is_name(*node.object, name)) return false;
  const auto& index = static_cast<const jinja::ConstantExpr&>(*node.index);
  return index.type == jinja::ConstantExpr::Type::kString && index.text == key;
}

// The variable (key empty) or its member, also through filters, tests and slices.
bool comes_from(const Expr& expr, std::string_view name, std::string_view key = {}) {
  if (expr.kind == ExprKind::kFilter) {
    const auto& node = static_cast<const jinja::FilterExpr&>(expr);
    return node.input != nullptr && comes_from(*node.input, name, key);
  }
  if (expr.kind == ExprKind::kTest) return comes_from(*static_cast<const jinja::TestExpr&>(expr).input, name, key);
  if (expr.kind == ExprKind::kSlice) return comes_from(*static_cast<const jinja::SliceExpr&>(expr).object, name, key);
  return key.empty() ? is_name(expr, name) : is_member(expr, name, key);
}

bool holds(const std::vector<std::string>& names, const std::string& name) {
  for (const std::string& known : names)
    if (known == name) return true;
  return false;
}

// "messages" and every variable set from it.
std::vector<std::string> message_lists(const Body& body) {
  std::vector<std::string> names = {"messages"};
  for (size_t i = 0; i < names.size(); ++i)
    walk(body, [&](const jinja::Statement& statement) {
      if (statement.kind != StatementKind::kSet) return;
      const auto& node = static_cast<const jinja::SetStatement&>(statement);
      const bool plain = !node.target.is_tuple && node.target.attribute.empty();
      if (names.size() < kMaxNames && plain && comes_from(*node.value, names[i]) && !holds(names, node.target.name))
        names.push_back(node.target.name);
    });
  return names;
}

}  // namespace

ContentFormat detect_content_format(const jinja::TemplateNode& root) {
  const std::vector<std::string> lists = message_lists(root.body);
  std::vector<std::string> messages;  // loop variables over one of the lists
  walk(root.body, [&](const jinja::Statement& statement) {
    if (statement.kind != StatementKind::kFor) return;
    const auto& node = static_cast<const jinja::ForStatement&>(statement);
    for (const std::string& list : lists)
      if (messages.size() < kMaxNames && !node.target.is_tuple && comes_from(*node.iterable, list) &&
          !holds(messages, node.target.name))
        messages.push_back(node.target.name);
  });
  bool found = false;
  walk(root.body, [&](const jinja::Statement& statement) {
    if (statement.kind != StatementKind::kFor) return;
    const auto& node = static_cast<const jinja::ForStatement&>(statement);
    for (const std::string& message : messages)
      if (!node.target.is_tuple && comes_from(*node.iterable, message, "content")) found = true;
  });
  return found ? ContentFormat::kParts : ContentFormat::kString;
}

}  // namespace tokenmill::text
