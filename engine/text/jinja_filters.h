#pragma once
#include <span>
#include <string_view>

#include "engine/text/jinja_runtime.h"

namespace tokenmill::jinja {

struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};

/// The filters of each file.
std::span<const FilterEntry> text_filters();      // jinja_filters_text.cpp: strings, numbers, JSON
std::span<const FilterEntry> sequence_filters();  // jinja_filters_sequence.cpp: first, join, batch, ...
std::span<const FilterEntry> select_filters();    // jinja_filters_select.cpp: map, select, sort, groupby, ...

/// str(value) of a filter's input; a string costs no copy.
struct InputText {
  InputText(Runtime& runtime, const Value& value);
  std::string_view view;

 private:
  Value hold_;
};

}  // namespace tokenmill::jinja
