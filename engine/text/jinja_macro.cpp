#include <fmt/format.h>

#include <algorithm>

#include "engine/text/jinja_interpreter.h"

namespace tokenmill::jinja {
namespace {

const std::string kCaller = "caller";
const std::string kVarargs = "varargs";
const std::string kKwargs = "kwargs";

}  // namespace

// A macro sees the variables of the place it is written at, with the values they have when it is called.
Value Interpreter::make_macro(const MacroDefinition& macro) {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
  Scope* closure = scope_;
  Value value = runtime_.callable(macro.name, [this, &macro, closure](Runtime& runtime, Arguments& arguments) {
    return runtime.string(call_macro(macro, closure, arguments));
  });
  value.get<CallableObject>().is_macro = true;
  return value;
}

std::string Interpreter::call_macro(const MacroDefinition& macro, Scope* closure, Arguments& arguments) {
  const int line = line_;
  const ScopeGuard scope(*this, closure);
  bind_parameters(macro, arguments);
  CaptureGuard capture(*this);
  execute(macro.body);
  line_ = line;
  return std::move(capture.text);
}

void Interpreter::bind_parameters(const MacroDefinition& macro, Arguments& arguments) {
  auto& named = arguments.named;
  const auto take = [&](const std::string& name) -> std::optional<Value> {
    const auto found = std::find_if(named.begin(), named.end(), [&](const auto& entry) { return entry.first == name; });
    if (found == named.end()) return std::nullopt;
    Value value = std::move(found->second);
    named.erase(found);
    return value;
  };
  const size_t num_parameters = macro.parameters.size();
  const size_t num_required = num_parameters - macro.defaults.size();
  const size_t num_positional = std::min(arguments.positional.size(), num_parameters);
  std::vector<std::optional<Value>> given(num_parameters);
  for (size_t i = 0; i < num_parameters; ++i)
    given[i] = i < num_positional ? arguments.positional[i] : take(macro.parameters[i]);
  const bool names_caller =
      std::find(macro.parameters.begin(), macro.parameters.end(), kCaller) != macro.parameters.end();
  if (macro.uses_caller && !names_caller) {
    std::optional<Value> caller = take(kCaller);
    set_variable(kCaller, caller && !caller->is_none() ? *caller : Value::undefined("No caller defined"));
  }
  for (size_t i = 0; i < num_parameters; ++i) {
    const std::string& name = macro.parameters[i];
    if (given[i])
      set_variable(name, *given[i]);
    else if (i >= num_required)
      set_variable(name, evaluate(*macro.defaults[i - num_required]));
    else
      set_variable(name, Value::undefined(fmt::format("parameter '{}' was not provided", name)));
  }
  if (macro.uses_kwargs) {
    std::vector<std::pair<Value, Value>> entries;
    for (auto& [name, value] : named) entries.emplace_back(runtime_.string(name), value);
    set_variable(kKwargs, runtime_.dict(std::move(entries)));
  } else if (!named.empty()) {
    throw RenderError(fmt::format("macro '{}' takes no keyword argument '{}'", macro.name, named[0].first));
  }
  if (macro.uses_varargs) {
    const auto begin = arguments.positional.begin() + static_cast<std::ptrdiff_t>(num_positional);
    set_variable(kVarargs, runtime_.tuple(std::vector<Value>(begin, arguments.positional.end())));
  } else if (arguments.positional.size() > num_parameters) {
    throw RenderError(fmt::format("macro '{}' takes not more than {} argument(s)", macro.name, num_parameters));
  }
}

void Interpreter::execute_call_block(const CallBlockStatement& statement) {
  const Value caller = make_macro(statement.caller);
  write(to_text(runtime_, call(static_cast<const CallExpr&>(*statement.call), &caller)));
}

}  // namespace tokenmill::jinja
