#include <csignal>
#include <cstdio>
#include <iostream>

#include "app/commands/commands.h"
#include "app/exit_codes.h"
#include "app/flags.h"
#include "parallel/mpi.h"

namespace tokenmill::app {
namespace {

/// Commands that ranks do together. A usage error is thrown after MPI is up, so that one rank prints it.
int run_on_ranks(const CommandLine& line, RunOptions options, const std::optional<Error>& usage) {
  if (const auto problem = parallel::check_launcher()) {
    if (problem->prints) print_error(Error(ErrorKind::kConfig, problem->text));
    return kExitUsage;
  }
  std::optional<jobs::StopSignals> signals;
  if (line.command == kRun) signals.emplace();  // before MPI starts threads
  parallel::MpiSession session({exit_code, print_error});
  const int code = session.guard([&] {
    parallel::agree(session.world(), usage);
    return signals ? run_job(std::move(options), session, *signals) : bench_throughput(std::move(options), session);
  });
  if (signals) signals->handle({});
  return code;
}

int run_program(const std::vector<std::string>& arguments) {
  CommandLine line;
  RunOptions options;
  std::optional<Error> usage;
  try {
    line = parse_command_line(arguments);
    options = parse_options(line);
    log::configure(chosen_log_level(options), "");
  } catch (const Error& error) {
    usage = error;
  }
  if (!line.text.empty()) return std::fputs(line.text.c_str(), stdout) < 0 ? kExitEnvironment : kExitDone;
  if (runs_on_ranks(arguments)) return run_on_ranks(line, std::move(options), usage);
  if (usage) throw Error(*usage);
  if (line.command == kValidate) return validate_job(std::move(options), std::cout);
  if (line.command == kTokenize) return tokenize(std::move(options), std::cin, std::cout);
  if (line.command == kInspect) return inspect(std::move(options), std::cout);
  if (line.command == kMerge) return merge_outputs(options, std::cout);
  if (line.command == kDiff) return diff_outputs(options, std::cout);
  return bench_kernels(std::move(options), std::cout);
}

}  // namespace
}  // namespace tokenmill::app

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its size limit is a failed write (EFBIG), not a death without a word
  try {
    return tokenmill::app::run_program({argv + 1, argv + argc});
  } catch (const tokenmill::Error& error) {
    tokenmill::app::print_error(error);
    return tokenmill::app::exit_code(error.kind());
  } catch (const std::exception& error) {
    tokenmill::app::print_error(tokenmill::Error(tokenmill::ErrorKind::kInternal, std::string(error.what())));
    return tokenmill::app::kExitInternal;
  }
}
