#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/option_values.h"
#include "app/options.h"
#include "jobs/report.h"

namespace tokenmill::app {

/// Commands as bits, for the options they take.
enum Command : unsigned {
  kRun = 1,
  kInspect = 2,
  kTokenize = 4,
  kBenchThroughput = 8,
  kBenchKernels = 16,
  kDiff = 32,
  kMerge = 128,
  kValidate = 64,  ///< takes all that kRun takes
};

/// How an option is written.
enum class OptionShape {
  kSwitch,  ///< --name, --name true, --name false, --no-name
  kValue,   ///< --name VALUE, once
  kList,    ///< --name A B --name C
  kMap,     ///< --name A=1 B=2; a mapping in a job file
};

/// What an option of `run` decides.
enum class Bearing : uint8_t {
  kNone,      ///< how it is done, where things are, what is reported; ranks and runs of a job may differ
  kSchedule,  ///< what is computed when: the same on all ranks, but the results do not show it
  kResults,   ///< the results: part of a job's identity
};

/// One option: its help and how it lands in RunOptions. The one place that flags, job file, --help and README follow.
struct OptionSpec {
  const char* name;   ///< long form without dashes
  const char* group;  ///< heading in --help
  OptionShape shape;
  const char* value;    ///< value and unit in --help: "TOKENS", "BYTES[K|M|G]"
  const char* help;     ///< one line
  const char* initial;  ///< the default as --help shows it
  unsigned commands;
  void (*apply)(RunOptions&, const Setting&);
  /// Its value as run.yaml shows it. None: it is no option of `run`, or shown elsewhere (the inputs, the rows'
  /// defaults).
  jobs::ReportValue (*shown)(const RunOptions&) = nullptr;
  Bearing bearing = Bearing::kNone;
};

/// Whether the command has the option.
inline bool takes(const OptionSpec& option, Command command) {
  return (option.commands & (command == kValidate ? kValidate | kRun : command)) != 0;
}

const std::vector<OptionSpec>& option_table();

/// The part of the table that gives rows their defaults.
const std::vector<OptionSpec>& sampling_options();

/// True for shapes that take any number of values.
inline bool takes_several(OptionShape shape) { return shape == OptionShape::kList || shape == OptionShape::kMap; }

/// The entry for a name, or nullptr.
const OptionSpec* find_option(std::string_view name);

/// Name (with underscores) and value of the options that run.yaml shows and that bear on `least` or more, in the
/// table's order.
jobs::ReportSection shown_options(const RunOptions& options, Bearing least = Bearing::kNone);

/// Applies one setting for one command. Throws Error(kConfig): a value that is not allowed, an option of another
/// command, an option of a later version (by name), an unknown one (with the closest known name).
void apply_setting(RunOptions& options, const Setting& setting, Command command);

/// True for names that are part of tokenmill's design and not built yet.
bool is_future_option(std::string_view name);

}  // namespace tokenmill::app
