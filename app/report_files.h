#pragma once
#include <string>
#include <vector>

namespace tokenmill::app {

struct RunOptions;

/// Checks the files that a command writes beside its results (--metrics-file, --iteration-log, --output-json) before
/// anything is written: each has a name of its own, none is a file that the run reads or a result, and what is replaced
/// as a whole is a regular file. Glob patterns of options.input are expanded already. Throws Error(kConfig).
void check_report_files(const RunOptions& options, const std::string& command, int num_ranks);

/// What a run reads besides its inputs: model, job file and chat template.
std::vector<std::string> files_in_use(const RunOptions& options);

}  // namespace tokenmill::app
