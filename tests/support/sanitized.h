#pragma once

namespace tokenmill::test {

/// Built with a sanitizer: ten times slower, so long tests do less.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace tokenmill::test
