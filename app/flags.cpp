#include "app/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>

#include "app/job_file.h"
#include "app/version.h"
#include "kernels/core/error.h"
#include "parallel/mpi.h"

namespace tokenmill::app {
namespace {

struct CommandSpec {
  Command command;
  const char* name;
  const char* help;
};

const std::vector<CommandSpec> kCommands = {
    {kRun, "run", "turn files of prompts into a file of answers"},
    {kValidate, "validate", "check a job and show how it would be laid out, without a launcher"},
    {kInspect, "inspect", "print a model's configuration, tensors and sizes, or why it is refused"},
    {kTokenize, "tokenize", "JSON values on standard input (text, messages or rows) to token ids"},
    {kMerge, "merge", "one file from the finished rows of one or more runs, also while they are stopped or running"},
    {kDiff, "diff", "compare two outputs row by row"},
};
const std::vector<CommandSpec> kBenches = {
    {kBenchThroughput, "throughput", "requests and tokens per second on random prompts"},
    {kBenchKernels, "kernels", "time of each operation as a share of this machine's measured limits"},
};
const std::vector<std::string> kFutureCommands = {"report", "plan", "top"};

const std::map<std::string, std::string> kShortFlags = {
    {"-tp", "--tensor-parallel-size"}, {"-pp", "--pipeline-parallel-size"}, {"-dp", "--data-parallel-size"}};

/// CLI11 reads a value "[a,b]" as the two values a and b; kept whole by a first byte that cannot be typed.
constexpr char kKeepWhole = '\x01';

std::string kept_whole(const std::string& value) { return value.starts_with('[') ? kKeepWhole + value : value; }

std::string as_typed(std::string value) {
  if (value.starts_with(kKeepWhole)) value.erase(0, 1);
  return value;
}

/// A word behind a switch that is its value, right or wrong: neither an option nor a file. Where a command takes files
/// of any name, there or not, a value is true or false.
bool is_switch_value(const std::string& word, Command command) {
  if (word == "true" || word == "false") return true;
  if (command == kMerge || command == kDiff) return false;
  std::error_code ignored;
  return !word.starts_with('-') && !word.ends_with(".yaml") && !word.ends_with(".yml") && word.find('/') == word.npos &&
         !std::filesystem::exists(word, ignored);
}

/// Gives every argument the one form CLI11 is told about: --name=value for switches, long names, dashes.
std::vector<std::string> rewritten(const std::vector<std::string>& arguments, Command command) {
  std::vector<std::string> out;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = std::min(argument.find('='), argument.size());
    std::string name = argument.substr(0, equals);
    const std::string rest = equals == argument.size() ? "" : "=" + kept_whole(argument.substr(equals + 1));
    if (const auto found = kShortFlags.find(name); found != kShortFlags.end()) {
      out.push_back(found->second + rest);
      continue;
    }
    if (!name.starts_with("--")) {
      out.push_back(kept_whole(argument));
      continue;
    }
    std::replace(name.begin(), name.end(), '_', '-');
    const auto is_switch = [](std::string_view option) {
      const OptionSpec* spec = find_option(option);
      return spec != nullptr && spec->shape == OptionShape::kSwitch;
    };
    const bool has_value = i + 1 < arguments.size() && is_switch_value(arguments[i + 1], command);
    if (rest.empty() && name.starts_with("--no-") && is_switch(name.substr(5))) {
      if (has_value)
        throw Error(ErrorKind::kConfig, "{0} takes no value, and {1} is given; write {0} alone or --{2}=true", name,
                    arguments[i + 1], name.substr(5));
      out.push_back("--" + name.substr(5) + "=false");
    } else if (rest.empty() && is_switch(name.substr(2))) {
      out.push_back(name + "=" + (has_value ? arguments[++i] : "true"));
    } else {
      out.push_back(name + rest);
    }
  }
  return out;
}

/// The options of one command, their values and CLI11's objects.
struct Parser {
  explicit Parser(const CommandSpec& spec, const std::string& full_name)
      : command(spec.command), cli(spec.help, "tokenmill " + full_name) {
    cli.allow_extras();
    cli.get_formatter()->column_width(44);
    for (const OptionSpec& option : option_table()) {
      if (!takes(option, command)) continue;
      const bool required = std::string_view(option.initial) == "required";
      const std::string help = fmt::format("{} ({}{})", option.help, required ? "" : "default: ", option.initial);
      auto* added = cli.add_option("--" + std::string(option.name), values[option.name], help);
      added->group(option.group)->type_name(option.value)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      if (takes_several(option.shape)) {
        added->expected(1, 1 << 28);
      } else {
        added->expected(1)->allow_extra_args(false);  // CLI11 would let a vector take the words behind it
      }
      options[option.name] = added;
    }
    if (command == kRun || command == kValidate)
      cli.add_option("JOB.yaml", job_file, "job file: the same names as the flags; flags win")->type_name("");
    if (command == kMerge)
      cli.add_option("DIR", directories, "output directories of runs, in the order of their rows")->type_name("");
    if (command == kDiff) {
      cli.add_option("A", first, "an output file (plain, .gz or .zst) or a job's output directory")->type_name("");
      cli.add_option("B", second, "the output to compare it with")->type_name("");
    }
  }

  Command command;
  CLI::App cli;
  std::map<std::string, std::vector<std::string>> values;
  std::map<std::string, CLI::Option*> options;
  std::string job_file;
  std::string first, second;  // diff's operands
  std::vector<std::string> directories;  // merge's
};

std::string top_help() {
  std::string text = fmt::format(
      "tokenmill {}: files of prompts to files of completions, on one machine or a cluster\n\n"
      "  mpirun -n RANKS tokenmill run --model M --input F... --output DIR [JOB.yaml] [options]\n\nCommands:\n",
      kVersion);
  for (const CommandSpec& spec : kCommands) text += fmt::format("  {:<18}{}\n", spec.name, spec.help);
  for (const CommandSpec& spec : kBenches) text += fmt::format("  bench {:<12}{}\n", spec.name, spec.help);
  return text + "\ntokenmill COMMAND --help lists the options; tokenmill --version prints the version.\n";
}

std::string bench_help() {
  std::string text = "measure this machine\nUsage: tokenmill bench NAME [options]\n\nBenchmarks:\n";
  for (const CommandSpec& spec : kBenches) text += fmt::format("  {:<18}{}\n", spec.name, spec.help);
  return text + "\ntokenmill bench NAME --help lists the options of each.\n";
}

/// The command, and how many arguments name it.
std::pair<const CommandSpec*, size_t> find_command(const std::vector<std::string>& arguments) {
  std::vector<std::string> names = {"bench"};
  for (const CommandSpec& spec : kCommands) {
    names.emplace_back(spec.name);
    if (arguments[0] == spec.name) return {&spec, 1};
  }
  if (arguments[0] == "bench") {
    for (const CommandSpec& spec : kBenches)
      if (arguments.size() > 1 && arguments[1] == spec.name) return {&spec, 2};
    throw Error(ErrorKind::kConfig, "bench {} is not a benchmark of this version; choose throughput or kernels",
                arguments.size() > 1 ? arguments[1] : "without a name");
  }
  if (std::find(kFutureCommands.begin(), kFutureCommands.end(), arguments[0]) != kFutureCommands.end())
    throw Error(ErrorKind::kConfig, "the command {} is not available in this version", arguments[0]);
  const std::string near = closest(arguments[0], names);
  throw Error(ErrorKind::kConfig, "{} is not a command{}; tokenmill --help lists them", arguments[0],
              near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

/// What CLI11 left over: unknown options and surplus words.
void refuse_extras(const Parser& parser, const std::string& command_name) {
  for (const std::string& left : parser.cli.remaining()) {
    const std::string extra = as_typed(left);
    if (extra.starts_with("--")) {
      const std::string name = extra.substr(2, extra.find('=') == std::string::npos ? extra.npos : extra.find('=') - 2);
      RunOptions ignored;
      apply_setting(ignored, {name, {}, "--" + name}, parser.command);  // throws: it is none of this command's options
    }
    if (extra.starts_with('-') && extra.size() > 1)
      throw Error(
          ErrorKind::kConfig,
          "{} is not an option of {}; options begin with two dashes (short ones: -tp, -pp, -dp), and --help lists them",
          extra, command_name);
    throw Error(ErrorKind::kConfig, "{} is one argument too many for {}; --help lists the options", extra,
                command_name);
  }
}

}  // namespace

bool runs_on_ranks(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return false;
  return arguments[0] == "run" || (arguments[0] == "bench" && arguments.size() > 1 && arguments[1] == "throughput");
}

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  CommandLine line;
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    line.text = top_help();
    return line;
  }
  if (arguments[0] == "--version") {
    line.text = fmt::format("tokenmill {}{}\n", kVersion, parallel::kHasMpi ? "" : ", one rank: built without MPI");
    return line;
  }
  if (arguments.size() == 2 && arguments[0] == "bench" && (arguments[1] == "--help" || arguments[1] == "-h")) {
    line.text = bench_help();
    return line;
  }
  const auto [spec, words] = find_command(arguments);
  line.command = spec->command;
  line.command_name = words == 2 ? fmt::format("bench {}", spec->name) : spec->name;
  Parser parser(*spec, line.command_name);
  std::vector<std::string> rest =
      rewritten({arguments.begin() + static_cast<std::ptrdiff_t>(words), arguments.end()}, spec->command);
  std::reverse(rest.begin(), rest.end());  // CLI11 takes its vector from the back
  try {
    parser.cli.parse(std::move(rest));
  } catch (const CLI::CallForHelp&) {
    line.text = parser.cli.help();
    return line;
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();  // "--NAME: 1 required VALUE missing"
    const std::string name = text.substr(0, text.find(':'));
    const OptionSpec* option = name.starts_with("--") ? find_option(name.substr(2)) : nullptr;
    if (option == nullptr) throw Error(ErrorKind::kConfig, "{}", text);
    throw Error(ErrorKind::kConfig, "{} needs a value ({})", name, option->value);
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::kConfig, "{}", error.what());
  }
  refuse_extras(parser, line.command_name);
  for (const OptionSpec& option : option_table()) {
    const auto found = parser.options.find(option.name);
    if (found == parser.options.end() || found->second->count() == 0) continue;
    const std::string where = fmt::format("--{}", option.name);
    std::vector<std::string> values;
    for (std::string& value : parser.values[option.name]) values.push_back(as_typed(std::move(value)));
    if (!takes_several(option.shape) && values.size() > 1)
      throw Error(ErrorKind::kConfig, "{} is given {} times; keep one", where, values.size());
    line.settings.push_back({option.name, std::move(values), where});
  }
  line.job_file = as_typed(parser.job_file);
  line.operands = {as_typed(parser.first), as_typed(parser.second)};
  if (line.command == kMerge) {
    line.operands.clear();
    for (const std::string& directory : parser.directories) line.operands.push_back(as_typed(directory));
  }
  return line;
}

RunOptions parse_options(const CommandLine& line) {
  RunOptions options;
  options.job_file = line.job_file;
  if (!line.job_file.empty())
    for (const Setting& setting : read_job_file(line.job_file)) apply_setting(options, setting, line.command);
  for (const Setting& setting : line.settings) apply_setting(options, setting, line.command);
  if (line.command == kMerge) options.merge.directories = line.operands;
  if (line.command == kDiff && line.operands.size() == 2) {  // --help has none
    options.diff.a = line.operands[0];
    options.diff.b = line.operands[1];
  }
  return options;
}

}  // namespace tokenmill::app
