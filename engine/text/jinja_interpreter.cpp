#include "engine/text/jinja_interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill::jinja {

Interpreter::Interpreter(Runtime& runtime, const Variables& variables) : runtime_(runtime) {
  globals_ = make_globals(runtime);
  for (const auto& variable : variables) {
    const auto same = [&](const auto& global) { return global.first == variable.first; };
    const auto found = std::find_if(globals_.begin(), globals_.end(), same);
    if (found != globals_.end())
      found->second = runtime.from_json(variable.second);
    else
      globals_.emplace_back(variable.first, runtime.from_json(variable.second));
  }
  scope_ = open_scope(nullptr);
}

Interpreter::~Interpreter() {
  for (auto* scopes : {&open_, &captured_})
    for (const auto& scope : *scopes) scope->variables.clear();
}

std::string Interpreter::run(const TemplateNode& root) {
  std::string text;
  out_ = &text;
  execute(root.body);
  out_ = nullptr;
  return text;
}

Value* Interpreter::find_variable(const std::string& name) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    runtime_.charge(static_cast<int64_t>(scope->variables.size() / 8));
    for (auto& [key, value] : scope->variables)
      if (*key == name) return &value;
  }
  for (auto& [key, value] : globals_)
    if (key == name) return &value;
  return nullptr;
}

void Interpreter::set_variable(const std::string& name, Value value) {
  runtime_.charge(static_cast<int64_t>(scope_->variables.size() / 8));
  for (auto& [key, existing] : scope_->variables)
    if (*key == name) {
      existing = std::move(value);
      return;
    }
  runtime_.charge_items(2);
  scope_->variables.emplace_back(&name, std::move(value));
}

Scope* Interpreter::open_scope(Scope* parent) {
  runtime_.charge_items(4);
  open_.push_back(std::make_unique<Scope>());
  open_.back()->parent = parent;
  return open_.back().get();
}

// Scopes close in the opposite order of opening.
void Interpreter::close_scope(Scope* scope) {
  TM_ASSERT(!open_.empty() && open_.back().get() == scope);
  if (scope->captured) captured_.push_back(std::move(open_.back()));
  open_.pop_back();
}

void Interpreter::write(std::string_view text) {
  runtime_.charge_bytes(text.size());
  if (out_->size() + text.size() > static_cast<size_t>(runtime_.limits().max_output_bytes))
    throw RenderError(fmt::format("the text is longer than {} bytes", runtime_.limits().max_output_bytes));
  out_->append(text);
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  const DepthGuard guard(runtime_);
  for (const auto& statement : body) {
    const Flow flow = execute(*statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  runtime_.charge(1);
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::kOutput:
      output(static_cast<const OutputStatement&>(statement));
      return Flow::kNext;
    case StatementKind::kFor:
      return execute_for(static_cast<const ForStatement&>(statement));
    case StatementKind::kIf:
      return execute_if(static_cast<const IfStatement&>(statement));
    case StatementKind::kSet: {
      const auto& set = static_cast<const SetStatement&>(statement);
      check_namespaces(set.target);
      assign(set.target, evaluate(*set.value));
      return Flow::kNext;
    }
    case StatementKind::kSetBlock:
      return execute_set_block(static_cast<const SetBlockStatement&>(statement));
    case StatementKind::kMacro: {
      const auto& macro = static_cast<const MacroStatement&>(statement).macro;
      set_variable(macro.name, make_macro(macro));
      return Flow::kNext;
    }
    case StatementKind::kCallBlock:
      execute_call_block(static_cast<const CallBlockStatement&>(statement));
      return Flow::kNext;
    case StatementKind::kFilterBlock:
      return execute_filter_block(static_cast<const FilterBlockStatement&>(statement));
    case StatementKind::kWith:
      return execute_with(static_cast<const WithStatement&>(statement));
    case StatementKind::kGeneration: {
      const ScopeGuard scope(*this, scope_);
      return execute(static_cast<const GenerationStatement&>(statement).body);
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

void Interpreter::output(const OutputStatement& statement) {
  if (statement.expr == nullptr)
    write(statement.text);
  else
    write(to_text(runtime_, evaluate(*statement.expr)));
}

Interpreter::Flow Interpreter::execute_if(const IfStatement& statement) {
  for (const auto& [test, body] : statement.branches)
    if (evaluate(*test).truthy()) return execute(body);
  return execute(statement.otherwise);
}

Interpreter::Flow Interpreter::execute_set_block(const SetBlockStatement& statement) {
  check_namespaces(statement.target);
  Value value;
  {
    const ScopeGuard scope(*this, scope_);
    CaptureGuard capture(*this);
    const Flow flow = execute(statement.body);
    if (flow != Flow::kNext) return flow;
    value = runtime_.string(std::move(capture.text));
    if (statement.filter != nullptr) {
      const Value* before = std::exchange(block_text_, &value);
      Value filtered = evaluate(*statement.filter);
      block_text_ = before;
      value = std::move(filtered);
    }
  }
  assign(statement.target, value);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_filter_block(const FilterBlockStatement& statement) {
  const ScopeGuard scope(*this, scope_);
  Value text;
  {
    CaptureGuard capture(*this);
    const Flow flow = execute(statement.body);
    if (flow != Flow::kNext) return flow;
    text = runtime_.string(std::move(capture.text));
  }
  const Value* before = std::exchange(block_text_, &text);
  const Value filtered = evaluate(*statement.filter);
  block_text_ = before;
  write(to_text(runtime_, filtered));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_with(const WithStatement& statement) {
  std::vector<Value> values;
  for (const auto& [target, expr] : statement.assignments) values.push_back(evaluate(*expr));
  const ScopeGuard scope(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(statement.assignments[i].first, values[i]);
  return execute(statement.body);
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (!target.is_tuple) {
    if (target.attribute.empty())
      set_variable(target.name, value);
    else
      assign_namespace(target, value);
    return;
  }
  if (!is_iterable(value) || value.is(ValueKind::kLoop))
    throw RenderError(fmt::format("cannot unpack non-iterable {} object", value.type_name()));
  const std::vector<Value> items = to_vector(runtime_, value);
  if (items.size() != target.items.size())
    throw RenderError(fmt::format("cannot unpack {} values into {} variables", items.size(), target.items.size()));
  for (size_t i = 0; i < items.size(); ++i) assign(target.items[i], items[i]);
}

void Interpreter::check_namespaces(const Target& target) {
  for (const Target& item : target.items) check_namespaces(item);
  if (target.attribute.empty()) return;
  const Value* space = find_variable(target.name);
  if (space == nullptr || !space->is(ValueKind::kNamespace))
    throw RenderError(fmt::format("cannot assign attribute on non-namespace object '{}'", target.name));
}

void Interpreter::assign_namespace(const Target& target, const Value& value) {
  const Value* variable = find_variable(target.name);
  if (variable == nullptr || !variable->is(ValueKind::kNamespace))
    throw RenderError(fmt::format("cannot assign attribute on non-namespace object '{}'", target.name));
  auto& space = variable->get<NamespaceObject>();
  runtime_.charge(static_cast<int64_t>(space.attributes.size() / 8));
  if (Value* existing = space.find(target.attribute)) {
    *existing = value;
    return;
  }
  runtime_.charge_items(2);
  space.attributes.emplace_back(target.attribute, value);
}

}  // namespace tokenmill::jinja
