#pragma once
#include <string>
#include <vector>

namespace tokenmill {

/// Directories of this process's control groups that may have files of a controller ("memory", "cpu"), of both versions,
/// from its own group up to the root's. Not all exist: a container may see its own group as the root. root: what stands
/// in front of /proc and /sys, for tests.
std::vector<std::string> control_group_directories(const std::string& controller, const std::string& root = "");

}  // namespace tokenmill
