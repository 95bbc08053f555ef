#pragma once
#include "kernels/core/error.h"

namespace tokenmill::detail {
/// Throws Error(kInternal) naming the expression and its place.
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line, const std::string& text);
}  // namespace tokenmill::detail

/// Our own invariants; on in Release too. TM_ASSERT(condition) or TM_ASSERT(condition, "fmt {}", args...).
#define TM_ASSERT(condition, ...)                                                                           \
  do {                                                                                                      \
    if (!(condition)) [[unlikely]]                                                                          \
      ::tokenmill::detail::assertion_failed(#condition, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__)); \
  } while (false)

/// The same inside inner loops; off when NDEBUG is defined.
#ifdef NDEBUG
#define TM_DEBUG_ASSERT(condition, ...) ((void)0)
#else
#define TM_DEBUG_ASSERT(condition, ...) TM_ASSERT(condition, __VA_ARGS__)
#endif
