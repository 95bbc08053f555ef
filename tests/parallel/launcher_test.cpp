#include <doctest/doctest.h>

#include <map>
#include <string>

#include "parallel/mpi.h"

namespace tokenmill::parallel {
namespace {

std::optional<LauncherProblem> check(const std::map<std::string, std::string>& environment, bool has_mpi = true) {
  return check_launcher(
      [&](const std::string& name) -> std::optional<std::string> {
        const auto entry = environment.find(name);
        return entry == environment.end() ? std::nullopt : std::optional(entry->second);
      },
      has_mpi);
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

TEST_CASE("without MPI any launcher of several processes is refused, and one of them says why") {
  const std::map<std::string, std::string> launchers[] = {
      {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}},
      {{"PMI_SIZE", "4"}, {"PMI_RANK", "0"}},
      {{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}, {"PMIX_RANK", "0"}}};  // srun, whatever its --mpi
  for (auto environment : launchers) {
    const auto first = check(environment, false);
    REQUIRE(first);
    CHECK(first->prints);
    for (const char* part : {"TOKENMILL_MPI=off", " 4 ", "start it alone"})
      CHECK(first->text.find(part) != std::string::npos);
    for (auto& [name, value] : environment)
      if (name.ends_with("RANK") || name.ends_with("PROCID")) value = "2";
    const auto third = check(environment, false);
    REQUIRE(third);
    CHECK_FALSE(third->prints);
  }
}

TEST_CASE("without MPI a process that is alone runs under any launcher") {
  CHECK_FALSE(check({}, false));
  CHECK_FALSE(check({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}, false));
  CHECK_FALSE(check({{"SLURM_NTASKS", "8"}}, false));                                         // batch script, no step
  CHECK_FALSE(check({{"SLURM_STEP_NUM_TASKS", "2"}, {"OMPI_COMM_WORLD_SIZE", "1"}}, false));  // mpirun -n 1 in a step
}

}  // namespace
}  // namespace tokenmill::parallel
