#pragma once

namespace tokenmill::test {

/// Built with a sanitizer: ten times slower, so long tests do less.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// ThreadSanitizer reports a race that a test plants, and fails the program: such tests do without it.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif

}  // namespace tokenmill::test
