#pragma once
#include <string>
#include <vector>

namespace tokenmill::app {

/// Where lines and tables go.
struct MergePaths {
  std::string lines, tables;  ///< empty: not written
};

/// Of `merge --output`: one format goes to that file, both to files that differ in their extension. Throws
/// Error(kConfig) where a file's name would say that it holds something else: another format, compressed bytes,
/// standard output.
MergePaths merge_paths(const std::string& output, bool lines, bool tables);

/// Refuses a file of `merge --output` that would take the place of what the jobs read or wrote: an input or a result of one
/// of the directories. Throws Error(kConfig) naming both.
void check_merge_output(const std::vector<std::string>& directories, const std::string& output);

}  // namespace tokenmill::app
