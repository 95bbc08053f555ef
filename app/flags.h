#pragma once
#include <string>
#include <vector>

#include "app/option_table.h"

namespace tokenmill::app {

/// What a command line says, before its values are checked.
struct CommandLine {
  Command command = kRun;
  std::string command_name;       ///< "run", "bench throughput"
  std::string job_file;           ///< empty: none
  std::vector<std::string> operands;  ///< diff: A and B, empty where not given; merge: the directories
  std::vector<Setting> settings;  ///< in the order of the option table
  std::string text;               ///< --help or --version: what to print; then nothing else is set
};

/// True for commands whose ranks work together (run, bench throughput), whatever else the arguments say.
bool runs_on_ranks(const std::vector<std::string>& arguments);

/// Reads argv[1..]. vLLM's -tp, -pp and -dp and --no-NAME are rewritten first; values are not looked at. Throws
/// Error(kConfig) for unknown commands and options (with the closest known name), options of later versions, repeated
/// options and missing values.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

/// Defaults, then the job file, then the flags: the whole of what the user asked, values checked one by one.
/// finish_options (options.h) does the rest.
RunOptions parse_options(const CommandLine& line);

}  // namespace tokenmill::app
