#pragma once
// A place in the source of a kernel. Two calls on one line differ by their column.
#ifndef __clang__
#include <source_location>
#endif

namespace tokenmill::emulation {

struct Site {
  const char* file;
  unsigned line;
  unsigned column;

  /// As a default argument: the place of the call.
#ifdef __clang__
  static constexpr Site here(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE(),
                             unsigned column = __builtin_COLUMN()) {
    return {file, line, column};
  }
#else
  static constexpr Site here(std::source_location place = std::source_location::current()) {
    return {place.file_name(), place.line(), place.column()};
  }
#endif
};

}  // namespace tokenmill::emulation
