#pragma once

namespace tokenmill::app {

inline constexpr const char* kVersion = TOKENMILL_VERSION;  ///< from the root CMakeLists.txt

}  // namespace tokenmill::app
