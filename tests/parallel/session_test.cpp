#include <doctest/doctest.h>

#include <string>

#include "support/process.h"

namespace tokenmill {
namespace {

constexpr double kSoon = 30;  // seconds; a hang would last until the test's timeout

test::ProcessResult run(const std::string& how, int ranks) {
  const std::string launcher = ranks == 0 ? "" : std::string(TM_MPIEXEC " -n ") + std::to_string(ranks) + " ";
  auto result = test::run_process(launcher + TM_SESSION_PROGRAM + " " + how);
  INFO(result.output);
  CHECK(result.elapsed_s < kSoon);
  return result;
}

TEST_CASE("the body's result is the exit code, with and without a launcher") {
  CHECK(run("fine", 2).exit_code == 75);
  CHECK(run("fine", 0).exit_code == 75);
}

TEST_CASE("an agreed error is printed once, names its rank and is every rank's exit code") {
  const auto result = run("agreed", 4);
  CHECK(result.exit_code == 4);
  CHECK(result.count("error[") == 1);
  CHECK(result.count("error[io] rank 3 of 4 on ") == 1);
  CHECK(result.count("MPI_ABORT") == 0);
}

TEST_CASE("an error of one rank alone ends all ranks with its message and code") {
  const auto device = run("alone", 4);
  CHECK(device.exit_code == 4);
  CHECK(device.count("error[") == 1);
  CHECK(device.count("error[device] rank 3 of 4 on ") == 1);
  const auto foreign = run("foreign", 2);
  CHECK(foreign.exit_code == 1);
  CHECK(foreign.count("not one of ours") == 1);
}

TEST_CASE("an uncaught exception in a thread, or of a foreign type, ends the job with one message") {
  const auto thread = run("thread", 2);
  CHECK(thread.exit_code == 1);
  CHECK(thread.count("error[internal] rank 1 of 2 on ") == 1);
  CHECK(thread.count("uncaught exception: in a helper thread") == 1);
  const auto foreign = run("unwinds", 2);
  CHECK(foreign.exit_code == 1);
  CHECK(foreign.count("error[internal]") == 1);
}

TEST_CASE("a single process prints its error and returns its code") {
  const auto result = run("alone", 0);
  CHECK(result.exit_code == 4);
  CHECK(result.output == "error[device] device lost\n");
}

TEST_CASE("tasks of a Slurm step without a process manager all exit 2 and the first one says why") {
  const std::string step = "SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=";
  const std::string program = std::string(" ") + TM_SESSION_PROGRAM + " fine";
  const auto first = test::run_process(step + "0" + program);
  CHECK(first.exit_code == 2);
  CHECK(first.count("--mpi=pmix") == 1);
  const auto other = test::run_process(step + "3" + program);
  CHECK(other.exit_code == 2);
  CHECK(other.output.empty());
}

}  // namespace
}  // namespace tokenmill
