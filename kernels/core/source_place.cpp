#include "kernels/core/source_place.h"

namespace tokenmill {

std::string_view source_path(std::string_view file) {
  // What stands before this file's own name in its __FILE__ stands before every other's.
  static constexpr std::string_view kThisPath = __FILE__, kThisName = "kernels/core/source_place.cpp";
  static_assert(kThisPath.ends_with(kThisName));
  constexpr std::string_view kRoot = kThisPath.substr(0, kThisPath.size() - kThisName.size());
  if (file.starts_with(kRoot)) file.remove_prefix(kRoot.size());
  return file;
}

}  // namespace tokenmill
