#include <doctest/doctest.h>

#include <map>
#include <string>

#include "parallel/mpi.h"

namespace tokenmill::parallel {
namespace {

std::optional<LauncherProblem> check(const std::map<std::string, std::string>& environment) {
  return check_launcher([&](const std::string& name) -> std::optional<std::string> {
    const auto entry = environment.find(name);
    return entry == environment.end() ? std::nullopt : std::optional(entry->second);
  });
}

TEST_CASE("a Slurm step of several tasks without a process manager is refused, and one task says why") {
  const auto first = check({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}});
  REQUIRE(first);
  CHECK(first->prints);
  for (const char* part : {"4 tasks", "--mpi=pmix", "mpirun"}) CHECK(first->text.find(part) != std::string::npos);
  const auto third = check({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "2"}});
  REQUIRE(third);
  CHECK_FALSE(third->prints);
}

TEST_CASE("launchers that do their work are not refused") {
  CHECK_FALSE(check({}));                                                              // no Slurm
  CHECK_FALSE(check({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}));          // a one-task step
  CHECK_FALSE(check({{"SLURM_NTASKS", "8"}}));                                         // batch script, no step
  CHECK_FALSE(check({{"SLURM_STEP_NUM_TASKS", "4"}, {"PMIX_RANK", "0"}}));             // srun --mpi=pmix
  CHECK_FALSE(check({{"SLURM_STEP_NUM_TASKS", "4"}, {"PMI_RANK", "3"}}));              // srun --mpi=pmi2
  CHECK_FALSE(check({{"SLURM_STEP_NUM_TASKS", "2"}, {"OMPI_COMM_WORLD_SIZE", "1"}}));  // mpirun -n 1 in a step
}

}  // namespace
}  // namespace tokenmill::parallel
