#pragma once
#include <string_view>

namespace tokenmill {

/// The path of a source file from the root of the repository, for messages: __FILE__ holds what the compiler was given,
/// which is absolute in one build and "../../kernels/x.cpp" in another. file: a __FILE__; the result points into it.
std::string_view source_path(std::string_view file);

}  // namespace tokenmill
