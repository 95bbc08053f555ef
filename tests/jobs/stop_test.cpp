// Jobs that are told to stop, by signals and by their time, and the same command again.
#include <doctest/doctest.h>

#include <csignal>
#include <string>

#include "io/file.h"
#include "jobs/stop_signals.h"
#include "support/process.h"
#include "support/temp_dir.h"

namespace tokenmill {
namespace {

using jobs::StopLevel;

TEST_CASE("USR1 and USR2 drain, TERM saves, a second TERM ends; repeats change nothing") {
  CHECK(jobs::escalated(StopLevel::kNone, SIGUSR1, 9) == StopLevel::kDrain);
  CHECK(jobs::escalated(StopLevel::kDrain, SIGUSR2, 9) == StopLevel::kDrain);
  CHECK(jobs::escalated(StopLevel::kNone, SIGTERM, 9) == StopLevel::kSave);
  CHECK(jobs::escalated(StopLevel::kDrain, SIGTERM, 9) == StopLevel::kSave);
  CHECK(jobs::escalated(StopLevel::kSave, SIGUSR1, 9) == StopLevel::kSave);
  CHECK(jobs::escalated(StopLevel::kSave, SIGTERM, 0.5) == StopLevel::kSave);  // Slurm's two of a time limit
  CHECK(jobs::escalated(StopLevel::kSave, SIGTERM, 1.5) == StopLevel::kNow);
  CHECK(jobs::escalated(StopLevel::kNow, SIGUSR1, 9) == StopLevel::kNow);
}

/// Rows of one to seven steps, and some of 400.
std::string input(int rows) {
  std::string text;
  for (int i = 0; i < rows; ++i) text += "{\"id\":" + std::to_string(i) + (i % 50 == 7 ? ",\"long\":1}\n" : "}\n");
  return text;
}

int64_t number_behind(const test::ProcessResult& result, const std::string& word) {
  const size_t at = result.output.find(word);
  return at == std::string::npos ? -1 : std::stoll(result.output.substr(at + word.size()));
}

struct Fixture {
  test::TempDir dir;
  std::string in = dir.write("in.jsonl", input(400)), out = dir / "out";
  std::string expected;
  int64_t row_steps = 0;

  Fixture() {
    const auto undisturbed = test::run_process(std::string(TM_JOB_PROGRAM " ") + dir / "undisturbed " + in);
    REQUIRE(undisturbed.exit_code == 0);
    expected = io::read_file(dir / "undisturbed/output.jsonl", 1 << 30);
    row_steps = number_behind(undisturbed, "row_steps ");
    REQUIRE(row_steps > 3000);
  }
  std::string command(int ranks, const std::string& arguments) const {
    return (ranks == 0 ? "" : std::string(TM_MPIEXEC " -n ") + std::to_string(ranks) + " ") + TM_JOB_PROGRAM + " " +
           out + " " + arguments + " " + in;
  }
  /// Runs it until rows are committed, does `then` with $job, and waits.
  test::ProcessResult interrupted(int ranks, const std::string& arguments, const std::string& then) const {
    return test::run_process(
        "children() { cat /proc/$1/task/$1/children; }; nth() { children $1 | cut -d' ' -f$2; }; { " +
        command(ranks, kSlow + arguments) + "; echo code $?; } & until ls " + out +
        "/journal/ledger/*.ledger >/dev/null 2>&1; do sleep 0.05; done; sleep 0.2; job=$(children $!); " + then +
        "; wait");
  }
  static constexpr const char* kSlow = " --commit-s 0.01 --running 6 --step-s 0.01 ";
};

TEST_CASE("a job stopped by a signal goes on where every row was: the same bytes, nothing computed twice") {
  const Fixture f;
  struct Case {
    const char* what;
    int ranks;
    const char *arguments, *then;
  };
  const Case cases[] = {
      {"USR1 by mpirun to all ranks", 3, "--drain-s 0.3", "kill -USR1 $job"},
      {"repeated, with CONT between", 2, "--drain-s 0",
       "for i in 1 2 3; do kill -USR1 $job; kill -CONT $job; done; kill -USR2 $job"},
      {"one rank of three only", 3, "--drain-s 0", "kill -USR2 $(nth $job 3)"},
      {"TERM to one rank of two", 2, "", "kill -TERM $(nth $job 1)"},
      {"replicas of two ranks, a follower is told", 4, "--drain-s 0 --replica-ranks 2", "kill -USR1 $(nth $job 4)"},
      {"without a launcher", 0, "--drain-s 0.1", "kill -USR1 $job"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    const auto stopped = f.interrupted(c.ranks, c.arguments, c.then);
    INFO(stopped.output);
    CHECK(stopped.count("code 75") == 1);
    CHECK(number_behind(stopped, " saved ") > 0);
    const auto again = test::run_process(f.command(2, ""));
    INFO(again.output);
    CHECK(again.exit_code == 0);
    CHECK(number_behind(again, "before ") == number_behind(stopped, " done "));
    CHECK(number_behind(stopped, "row_steps ") + number_behind(again, "row_steps ") == f.row_steps);
    CHECK(io::read_file(f.out + "/output.jsonl", 1 << 30) == f.expected);
    test::run_process("rm -r " + f.out);
  }
}

TEST_CASE("rows that are stopped again and again keep what they have come to") {
  const Fixture f;
  int64_t row_steps = 0;
  for (int i = 0; i < 3; ++i) {
    const auto stopped = test::run_process(f.command(1 + i % 2, std::string("--max-s 1.5 ") + Fixture::kSlow));
    INFO(stopped.output);
    CHECK(stopped.exit_code == 75);
    row_steps += number_behind(stopped, "row_steps ");
  }
  const auto last = test::run_process(f.command(0, ""));
  CHECK(last.exit_code == 0);
  CHECK(row_steps + number_behind(last, "row_steps ") == f.row_steps);
  CHECK(io::read_file(f.out + "/output.jsonl", 1 << 30) == f.expected);
}

TEST_CASE("what was saved of a row is not another identity's: --accept-change begins it anew") {
  const Fixture f;
  const auto stopped = f.interrupted(0, "--fact one --drain-s 0", "kill -USR1 $job");
  INFO(stopped.output);
  REQUIRE(number_behind(stopped, " saved ") > 0);
  const auto changed = test::run_process(f.command(0, "--fact two --accept-change"));
  CHECK(changed.exit_code == 0);
  CHECK(number_behind(stopped, "row_steps ") + number_behind(changed, "row_steps ") > f.row_steps);
}

TEST_CASE("a second TERM ends all ranks at once") {
  const Fixture f;
  const auto result =
      f.interrupted(2, "--long-step-s 20", "kill -TERM $(nth $job 1); sleep 1.3; kill -TERM $(nth $job 1)");
  INFO(result.output);
  CHECK(result.count("\ncode 75\n") == 1);  // mpirun's own words have it, too
  CHECK(result.elapsed_s < 15);
}

}  // namespace
}  // namespace tokenmill
