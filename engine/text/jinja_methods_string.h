#pragma once
#include <span>
#include <string_view>

#include "engine/text/jinja_runtime.h"

namespace tokenmill::jinja {

struct StringMethod {
  std::string_view name;
  Value (*method)(Runtime&, const Value& self, const Arguments&);
};

/// Padding (ljust, zfill, ...) and questions about characters (isdigit, ...): jinja_methods_string_layout.cpp.
std::span<const StringMethod> string_layout_methods();

}  // namespace tokenmill::jinja
