#pragma once
#include <string>
#include <vector>

#include "kernels/core/error.h"

namespace tokenmill::app {

struct RunOptions;

/// Checks the files that a command writes beside its results (--metrics-file, --iteration-log, --output-json) before
/// anything is written: each has a name of its own, none is a directory, a file that the run reads or a result, and
/// what is replaced as a whole is a regular file. Glob patterns of options.input are expanded already. Throws
/// Error(kConfig).
void check_report_files(const RunOptions& options, const std::string& command, int num_replicas);

/// Whether they could be written from here, as far as that shows without writing: a file that is there is opened,
/// another made and removed. Those that would lie in an output directory that is not there yet are passed over. Throws
/// unwritable().
void try_report_files(const RunOptions& options, const std::string& command, int num_replicas);

/// Error(kIo) of a file of flag that cannot be written, with what to do about it.
Error unwritable(const std::string& flag, const std::string& path, const Error& reason);

/// What a run reads besides its inputs: model, job file and chat template.
std::vector<std::string> files_in_use(const RunOptions& options);

}  // namespace tokenmill::app
