// A rank that hangs, is stopped or dies: the job ends within seconds and its journal is whole.
#include "jobs/watchdog.h"

#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "io/file.h"
#include "support/process.h"
#include "support/temp_dir.h"

namespace tokenmill::jobs {
namespace {

RankState state(const char* what, int64_t sequence, double lasts_s, bool must_end, const char* waits = "") {
  RankState state{.sequence = sequence, .num_rows = 3, .lasts_s = lasts_s, .must_end = must_end};
  std::strcpy(state.what.data(), what);
  std::strcpy(state.waits.data(), waits);
  std::strcpy(state.host.data(), "n1");
  return state;
}

TEST_CASE("who must end something and does not, or is not heard, stalls; who waits for rows does not") {
  const StallLimits limits{.lasts_s = 10, .silent_s = 4};
  CHECK_FALSE(find_stalled({state("waiting for rows", 0, 1e9, false), state("step", 9, 9, true)}, {0, 3.9}, limits));
  CHECK(find_stalled({state("step", 9, 11, true), state("step", 9, 12, true)}, {0, 0}, limits) == Stalled{1});
  CHECK(find_stalled({state("step", 9, 1, true), state("waiting for rows", 9, 0, false)}, {0, 5}, limits) ==
        Stalled{1, true});
  // Who waits for a rank that is gone gets nowhere either: the one further beyond its limit is named.
  CHECK(find_stalled({state("step", 9, 11, true), state("step", 9, 1, true)}, {0, 8}, limits) == Stalled{1, true});
}

TEST_CASE("ranks that wait for each other stall when none of them gets on") {
  const StallLimits limits{.lasts_s = 10, .silent_s = 4, .together = true};
  CHECK_FALSE(find_stalled({state("merging", 9, 11, true), state("merging", 9, 2, true)}, {0, 0}, limits));
  CHECK_FALSE(find_stalled({state("merging", 9, 11, true), state("waiting", 9, 20, false)}, {0, 0}, limits));
  CHECK(find_stalled({state("merging", 9, 11, true), state("merging", 9, 12, true)}, {0, 0}, limits) == Stalled{1});
  CHECK(find_stalled({state("merging", 9, 11, true), state("merging", 9, 2, true)}, {0, 5}, limits) ==
        Stalled{1, true});
}

TEST_CASE("the table has a line for each rank, one for neighbours that do the same") {
  const std::vector<std::string> lines =
      describe_ranks({state("step", 9, 1, true, "exchange 812"), state("step", 9, 1.2, true, "exchange 812"),
                      state("step", 9, 1.2, true), state("waiting for rows", 9, 0, false), RankState()},
                     {0, 0, 0, 5, 6});
  CHECK(lines ==
        std::vector<std::string>{
            "ranks 0-1 on n1: step 9 for 1.0 s, waiting for exchange 812, 3 rows in flight, last heard 0.0 s ago",
            "rank 2 on n1: step 9 for 1.2 s, 3 rows in flight, last heard 0.0 s ago",
            "rank 3 on n1: waiting for rows, 3 rows in flight, last heard 5.0 s ago",
            "rank 4: not heard yet, 0 rows in flight, last heard 6.0 s ago"});
}

TEST_CASE("scopes of an activity nest, and every beginning and end is progress") {
  Activity activity;
  CHECK_FALSE(activity.now().must_end);
  {
    const Activity::Scope outer(activity, "outer", 1);
    activity.hold_rows(7);
    const Activity::Now before = activity.now();
    CHECK(before.must_end);
    { const Activity::Scope inner(activity, "inner", 2); }
    CHECK(std::string(activity.now().what) == "outer");
    CHECK(activity.now().changes > before.changes);
    CHECK(activity.now().num_rows == 7);
  }
  CHECK_FALSE(activity.now().must_end);
}

struct Fixture {
  test::TempDir dir;
  std::string in, out = dir / "out", expected;
  Fixture() {
    std::string rows;
    for (int i = 0; i < 2000; ++i) rows += "{\"id\":" + std::to_string(i) + "}\n";
    in = dir.write("in.jsonl", rows);
    REQUIRE(test::run_process(TM_JOB_PROGRAM " " + dir / "undisturbed " + in).exit_code == 0);
    expected = io::read_file(dir / "undisturbed/output.jsonl", 1 << 30);
  }
  std::string command(const std::string& arguments) const {
    return TM_MPIEXEC " -n 3 " TM_JOB_PROGRAM " " + out + " --commit-s 0.05 --running 4 --step-s 0.05 " + arguments +
           " " + in;
  }
  void check_the_same_command_goes_on() const {
    const auto again = test::run_process(TM_MPIEXEC " -n 2 " TM_JOB_PROGRAM " " + out + " " + in);
    INFO(again.output);
    CHECK(again.exit_code == 0);
    CHECK(again.count("before 0 ") == 0);
    CHECK(io::read_file(out + "/output.jsonl", 1 << 30) == expected);
  }
};

TEST_CASE("a rank that hangs or stands still ends the job in seconds, with a table; the same command goes on") {
  const Fixture f;
  struct Case {
    const char* fail;
    const char* text;
    bool is_silent;
  };
  for (const Case& c : {Case{"1:hang", "rank 1 of 3 on ", false}, Case{"2:stop", "rank 2 of 3 on ", true},
                        Case{"0:hang", "rank 0 on ", false}, Case{"2:encode-hang", "(encoding row ", false},
                        Case{"0:stop", "rank 0 has not been heard for ", true}}) {
    CAPTURE(c.fail);
    const auto ended = test::run_process(f.command(std::string("--stall-s 2 --fail ") + c.fail));
    INFO(ended.output);
    CHECK(ended.exit_code == 4);
    CHECK(ended.count(c.text) >= 1);
    CHECK((ended.count(" has not been heard for ") > 0) == c.is_silent);
    CHECK((ended.count("--stall-seconds") > 0) == !c.is_silent);
    CHECK(ended.elapsed_s < 30);
  }
  f.check_the_same_command_goes_on();
}

TEST_CASE("a rank that dies in whatever way ends the job in seconds; the same command goes on") {
  const Fixture f;
  struct Case {
    const char* fail;
    int exit_code;
    const char* text;
  };
  for (const Case& c :
       {Case{"1:kill", 137, "on signal 9"}, Case{"2:segv", 139, "on signal 11"}, Case{"0:abort", 134, "on signal 6"},
        Case{"1:exit", 1, "rank 1 of 3 on "}, Case{"0:exit", 1, "exit() while the job runs"}}) {
    CAPTURE(c.fail);
    const auto ended = test::run_process(f.command(std::string("--fail ") + c.fail));
    INFO(ended.output);
    CHECK(ended.exit_code == c.exit_code);
    CHECK(ended.count(c.text) >= 1);
    CHECK(ended.elapsed_s < 20);
  }
  f.check_the_same_command_goes_on();
}

TEST_CASE("a job that is suspended for longer than a rank may hang goes on when it is continued") {
  const Fixture f;
  const auto result = test::run_process(
      f.command("--max-s 12 --stall-s 1") + " & job=$!; until ls " + f.out +
      "/journal/ledger/*.ledger >/dev/null 2>&1; do sleep 0.05; done; ranks=$(cat /proc/$job/task/$job/children); "
      "kill -STOP $ranks; sleep 4; kill -CONT $ranks; wait $job; echo code $?");
  INFO(result.output);
  CHECK(result.count("code 75") == 1);
  CHECK(result.count("makes no progress") == 0);
}

}  // namespace
}  // namespace tokenmill::jobs
