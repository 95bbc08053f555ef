#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "engine/text/jinja_value.h"

namespace tokenmill::jinja {

/// `loop` inside a for: where it stands, looking one item ahead at most, as Jinja does (a loop's filter and a generator
/// run interleaved with the body).
struct LoopObject : Object {
  std::function<bool(Value&)> pull;                    ///< the next item that passes the loop's filter
  std::function<Value(Runtime&, Arguments&)> recurse;  ///< loop(items) of a recursive loop; empty otherwise
  std::optional<int64_t> length;                       ///< known up front, or counted by asking for it
  int64_t index0 = -1;
  int64_t depth0 = 0;
  std::optional<Value> after;
  Value current;
  Value before;
  std::optional<std::vector<Value>> last_changed;

  /// Moves on; false at the end.
  bool advance(Value& item);
  bool has_next();
  /// Counts what is left when the length is not known.
  int64_t get_length(Runtime& runtime);
  /// The attribute of that name; none when there is no such attribute.
  std::optional<Value> attribute(Runtime& runtime, const std::shared_ptr<Object>& self, const std::string& name);
  /// Ends the loop's life: lets go of everything it may hold.
  void close();
};

}  // namespace tokenmill::jinja
