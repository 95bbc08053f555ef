// One rank fails, in every thread a job has: the whole job ends within seconds, with one message and the right code.
#include <doctest/doctest.h>

#include <string>

#include "support/process.h"
#include "support/temp_dir.h"

namespace tokenmill {
namespace {

struct Planted {
  const char* place;
  int exit_code;
  const char* message;
};

constexpr Planted kPlanted[] = {
    {"load", 4, "planted while loading"},        {"step", 4, "planted in the step loop"},
    {"encode", 2, "planted in the feed thread"}, {"write", 4, "00000"},  // the part file's name
    {"foreign", 1, "planted, not ours"},         {"thread", 1, "uncaught exception: planted in a thread"},
};

std::string rows(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "{\"id\":" + std::to_string(i) + "}\n";
  return text;
}

/// The other ranks have work for longer than the test allows: only the failure can end them.
void check_ends(int ranks, int failing_rank, const Planted& planted, int replica_ranks = 1) {
  CAPTURE(ranks);
  CAPTURE(failing_rank);
  CAPTURE(planted.place);
  const test::TempDir dir;
  const std::string command = (ranks == 0 ? std::string() : TM_MPIEXEC " -n " + std::to_string(ranks) + " ") +
                              TM_JOB_PROGRAM " " + dir / "out" + " --step-s 0.05 --replica-ranks " +
                              std::to_string(replica_ranks) + " --fail " + std::to_string(failing_rank) + ":" +
                              planted.place + " " + dir.write("in.jsonl", rows(8000));
  const auto result = test::run_process(command);
  INFO(result.output);
  CHECK(result.exit_code == planted.exit_code);
  CHECK(result.count("error[") == 1);
  std::string message = planted.message;
  if (std::string(planted.place) == "write")
    message = "journal/parts/00000-0000" + std::to_string(failing_rank / replica_ranks) + ".jsonl";
  CHECK(result.count(message) == 1);
  if (ranks > 1)
    CHECK(result.count("rank " + std::to_string(failing_rank) + " of " + std::to_string(ranks) + " on ") == 1);
  CHECK(result.elapsed_s < 20);
}

TEST_CASE("a failure in any thread of one rank ends four ranks") {
  for (const Planted& planted : kPlanted) check_ends(4, 2, planted);
}

TEST_CASE("a failure on rank 0 ends the others") {
  for (const Planted& planted : kPlanted) check_ends(2, 0, planted);
}

TEST_CASE("a failure without a launcher is one message and its exit code") {
  for (const Planted& planted : kPlanted) check_ends(0, 0, planted);
}

TEST_CASE("a failure of a leader or of a follower ends two replicas of two ranks") {
  for (const Planted& planted : kPlanted) {
    check_ends(4, 2, planted, 2);
    const bool has_followers = std::string(planted.place) != "encode" && std::string(planted.place) != "write";
    if (has_followers) check_ends(4, 3, planted, 2);
  }
  check_ends(4, 1, kPlanted[1], 2);
  check_ends(3, 2, kPlanted[1], 3);
}

TEST_CASE("a killed rank ends the job, a leader as a follower") {
  for (const int replica_ranks : {1, 2}) {
    for (const char* killed : {"2", "3"}) {
      const test::TempDir dir;
      const auto result = test::run_process(
          std::string(TM_MPIEXEC " -n 4 sh -c 'if [ \"$OMPI_COMM_WORLD_RANK\" = ") + killed +
          " ]; then (sleep 1; kill -9 $$) & fi; exec " + TM_JOB_PROGRAM " " + dir / "out" + " --step-s 0.05 " +
          "--replica-ranks " + std::to_string(replica_ranks) + " " + dir.write("in.jsonl", rows(8000)) + "'");
      INFO(result.output);
      CHECK(result.exit_code == 137);
      CHECK(result.elapsed_s < 20);
    }
  }
}

}  // namespace
}  // namespace tokenmill
