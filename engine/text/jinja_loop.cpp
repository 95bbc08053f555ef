#include "engine/text/jinja_loop.h"

#include <memory>
#include <utility>

#include "engine/text/jinja_runtime.h"

namespace tokenmill::jinja {

bool LoopObject::advance(Value& item) {
  Value next;
  if (after) {
    next = std::move(*after);
    after.reset();
  } else if (!pull || !pull(next)) {
    return false;
  }
  ++index0;
  before = std::move(current);
  current = next;
  item = std::move(next);
  return true;
}

bool LoopObject::has_next() {
  if (after) return true;
  Value next;
  if (!pull || !pull(next)) return false;
  after = std::move(next);
  return true;
}

int64_t LoopObject::get_length(Runtime& runtime) {
  if (length) return *length;
  auto rest = std::make_shared<std::vector<Value>>();
  Value item;
  while (pull && pull(item)) {
    runtime.charge_items(1);
    rest->push_back(std::move(item));
  }
  length = static_cast<int64_t>(rest->size()) + index0 + 1 + (after ? 1 : 0);
  pull = [rest, position = size_t{0}](Value& out) mutable {
    if (position == rest->size()) return false;
    out = (*rest)[position++];
    return true;
  };
  return *length;
}

namespace {

Value cycle(Runtime&, const LoopObject& loop, const Arguments& arguments) {
  if (arguments.positional.empty()) throw RenderError("no items for cycling given");
  return arguments.positional[static_cast<size_t>(loop.index0) % arguments.positional.size()];
}

Value changed(Runtime& runtime, LoopObject& loop, const Arguments& arguments) {
  bool same = loop.last_changed && loop.last_changed->size() == arguments.positional.size();
  for (size_t i = 0; same && i < arguments.positional.size(); ++i)
    same = equal(runtime, (*loop.last_changed)[i], arguments.positional[i]);
  if (!same) loop.last_changed = arguments.positional;
  return Value::boolean(!same);
}

}  // namespace

std::optional<Value> LoopObject::attribute(Runtime& runtime, const std::shared_ptr<Object>& self,
                                           const std::string& name) {
  if (name == "index") return Value::integer(index0 + 1);
  if (name == "index0") return Value::integer(index0);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "last") return Value::boolean(!has_next());
  if (name == "length") return Value::integer(get_length(runtime));
  if (name == "revindex") return Value::integer(get_length(runtime) - index0);
  if (name == "revindex0") return Value::integer(get_length(runtime) - index0 - 1);
  if (name == "depth") return Value::integer(depth0 + 1);
  if (name == "depth0") return Value::integer(depth0);
  if (name == "previtem") return index0 == 0 ? Value::undefined("there is no previous item") : before;
  if (name == "nextitem") return has_next() ? *after : Value::undefined("there is no next item");
  const std::weak_ptr<Object> weak = self;
  const auto method = [&](auto function) {
    return runtime.callable("loop." + name, [weak, function](Runtime& rt, Arguments& arguments) {
      const auto object = weak.lock();
      if (object == nullptr) throw RenderError("the loop has ended");
      if (!arguments.named.empty()) throw RenderError("loop methods take no keyword arguments");
      return function(rt, static_cast<LoopObject&>(*object), arguments);
    });
  };
  if (name == "cycle") return method(cycle);
  if (name == "changed") return method(changed);
  return std::nullopt;
}

void LoopObject::close() {
  pull = nullptr;
  recurse = nullptr;
  after.reset();
  current = {};
  before = {};
  last_changed.reset();
}

}  // namespace tokenmill::jinja
