#include <fmt/format.h>

#include "engine/text/jinja_interpreter.h"

namespace tokenmill::jinja {

Interpreter::Flow Interpreter::execute_for(const ForStatement& statement) {
  return run_loop(statement, evaluate(*statement.iterable), 0);
}

// Items of the loop one by one, those that the loop's own test drops left out. The test sees the loop's target in a
// scope of its own below `outer`.
std::function<bool(Value&)> Interpreter::loop_source(const ForStatement& statement, const Value& iterable, Scope* outer,
                                                     LoopObject& loop) {
  auto iterator = std::make_shared<Iterator>(runtime_, iterable);
  if (statement.test == nullptr) {
    if (!iterable.is(ValueKind::kGenerator)) loop.length = length_of(iterable);
    return [iterator](Value& item) { return iterator->next(item); };
  }
  return [this, iterator, outer, &statement](Value& item) {
    while (iterator->next(item)) {
      const ScopeGuard scope(*this, outer);
      assign(statement.target, item);
      if (evaluate(*statement.test).truthy()) return true;
    }
    return false;
  };
}

namespace {

// Ends a loop's life also when an error passes through.
struct LoopCloser {
  LoopObject& loop;
  ~LoopCloser() { loop.close(); }
};

}  // namespace

Interpreter::Flow Interpreter::run_loop(const ForStatement& statement, const Value& iterable, int64_t depth0) {
  static const std::string kLoopName = "loop";
  const DepthGuard guard(runtime_);
  runtime_.charge_items(8);
  Scope* outer = scope_;
  auto loop = std::make_shared<LoopObject>();
  const LoopCloser closer{*loop};
  loop->depth = iterable.depth() + 1;
  loop->depth0 = depth0;
  loop->pull = loop_source(statement, iterable, outer, *loop);
  if (statement.recursive)
    loop->recurse = [this, &statement, outer, depth0](Runtime&, Arguments& arguments) {
      const Bound bound(arguments, "loop", {"iterable"}, 1);
      Scope* before = std::exchange(scope_, outer);
      CaptureGuard capture(*this);
      run_loop(statement, *bound[0], depth0 + 1);
      scope_ = before;
      return runtime_.string(std::move(capture.text));
    };
  const Value loop_value = Value::object(ValueKind::kLoop, loop);
  bool completed = false;  // as in jinja2, else runs unless some iteration came to the end of the body
  Value item;
  while (loop->advance(item)) {
    const ScopeGuard scope(*this, outer);
    set_variable(kLoopName, loop_value);
    assign(statement.target, item);
    const Flow flow = execute(statement.body);
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNext;
    line_ = statement.line;
  }
  if (completed || statement.otherwise.empty()) return Flow::kNext;
  const ScopeGuard scope(*this, outer);
  return execute(statement.otherwise);
}

}  // namespace tokenmill::jinja
