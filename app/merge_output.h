#pragma once
#include <string>
#include <vector>

namespace tokenmill::app {

/// Refuses a file of `merge --output` that would take the place of what the jobs read or wrote: an input or a result of one
/// of the directories. Throws Error(kConfig) naming both.
void check_merge_output(const std::vector<std::string>& directories, const std::string& output);

}  // namespace tokenmill::app
