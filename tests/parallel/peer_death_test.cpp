#include <doctest/doctest.h>

#include <string>

#include "support/process.h"

namespace tokenmill {
namespace {

constexpr double kSoon = 30;  // seconds; a hang would last until the test's timeout

test::ProcessResult run(const std::string& launcher_options, const std::string& arguments) {
  auto result = test::run_process(std::string(TM_MPIEXEC) + launcher_options + " " TM_DEATH_PROGRAM " " + arguments);
  CHECK_MESSAGE(result.elapsed_s < kSoon, result.output);
  return result;
}

// A launcher that lets the others go on when a rank dies, as srun without -K1 does: they have to notice themselves.
constexpr const char* kNobodyElse = " --enable-recovery";

void check_named(const std::string& way, const std::string& ranks, const std::string& victim,
                 const std::string& waiting_for) {
  const auto result = run(kNobodyElse + (" -n " + ranks), way + " " + victim);
  INFO(way, ": ", result.output);
  CHECK(result.count("waited for " + waiting_for + " of a group with rank " + victim + " on ") >= 1);
  CHECK(result.count(", whose process ") >= 1);
}

TEST_CASE("a peer that died is named by those that wait for its tensors, whatever carries them") {
  for (const std::string route : {"shm", "mpi"}) {
    check_named(route, "2", "1", "exchange");
    check_named(route, "3", "0", "exchange");
  }
}

#ifdef TOKENMILL_CUDA
TEST_CASE("a peer that died is named by those that wait for its device memory") {
  check_named("nccl", "2", "1", "transfers");
  check_named("nccl", "3", "0", "transfers");
}
#endif

TEST_CASE("a peer that dies while costs are measured is named") {
  check_named("measure", "2", "1", "a transfer that is measured");
  check_named("measure", "3", "2", "a transfer that is measured");
}

TEST_CASE("a watch names the process that is gone, and no other") { check_named("watch", "3", "1", "a sign"); }

TEST_CASE("under a launcher that ends a job with its first rank the job ends, too") {
  CHECK(run(" -n 2", "shm 1").exit_code != 0);
}

}  // namespace
}  // namespace tokenmill
