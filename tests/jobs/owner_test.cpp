// Runs that meet in one output directory: who lives keeps it, who is gone or silent loses it.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "io/file.h"
#include "support/process.h"
#include "support/temp_dir.h"

namespace tokenmill {
namespace {

namespace fs = std::filesystem;

/// A job of 3,000 rows in "out", for a shell: `first` runs it in the background (30 s, pid in $first) and waits for its
/// first rows, `second` runs it fast and prints its exit code.
struct Meeting {
  test::TempDir dir;
  std::string in, out = dir / "out";

  Meeting() {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += "{\"id\":" + std::to_string(i) + "}\n";
    in = dir.write("in.jsonl", text);
  }
  std::string first(const std::string& options = "") const {
    return std::string(TM_JOB_PROGRAM " ") + out + " --running 1 --step-s 0.01 --commit-s 0.2 " + options + " " + in +
           " > " + dir / "first.txt" + " 2>&1 & first=$!; until test -s " + out +
           "/journal/parts/00000-00000.jsonl; do sleep 0.05; done; ";
  }
  std::string second(const std::string& options = "") const {
    return std::string(TM_JOB_PROGRAM " ") + out + " " + options + " " + in + "; echo second $?; ";
  }
  test::ProcessResult run(const std::string& script) const {
    auto result = test::run_process(script);
    result.output += io::read_file(dir / "first.txt", 1 << 30);
    return result;
  }
  /// The job is finished, with the bytes of an undisturbed run.
  void check_output() const {
    CHECK(test::run_process(std::string(TM_JOB_PROGRAM " ") + dir / "alone" + " " + in).exit_code == 0);
    CHECK(io::read_file(out + "/output.jsonl", 1 << 30) == io::read_file(dir / "alone/output.jsonl", 1 << 30));
    CHECK_FALSE(fs::exists(out + "/journal/alive"));
  }
};

constexpr const char* kKillFirst = "kill -9 $first; wait $first; ";
/// Changes a line of the owner's: "name value".
std::string forge(const Meeting& meeting, const std::string& name, const std::string& value) {
  return "sed -i 's/^" + name + " .*/" + name + " " + value + "/' " + meeting.out + "/journal/owner; ";
}

TEST_CASE("a directory that a live run uses is refused by its name, with --restart too, and the run is not disturbed") {
  const Meeting meeting;
  const auto both = meeting.run(meeting.first() + meeting.second() + meeting.second("--restart") +
                                "echo pid $first; kill -USR1 $first; wait $first; echo first $?; ls " + meeting.out +
                                "/journal; " + meeting.second());
  INFO(both.output);
  CHECK(both.count("second 2") == 2);
  CHECK(both.count("error[config] output directory " + meeting.out + " is in use: run 0 (") == 2);
  const size_t at = both.output.find("\npid ") + 5;
  const std::string pid = both.output.substr(at, both.output.find('\n', at) - at);
  CHECK(both.count(", pid " + pid + ", started 20") >= 2);
  CHECK(both.count("(kill -USR1 " + pid + " on ") == 2);
  CHECK(both.count("first 75") == 1);
  CHECK(both.count("\nalive\n") == 0);  // it ended in order
  CHECK(both.count("second 0") == 1);
  meeting.check_output();
}

TEST_CASE("a killed run's journal is taken over at once") {
  const Meeting meeting;
  const auto both = meeting.run(meeting.first() + kKillFirst + "ls " + meeting.out + "/journal; date +%s.%N; " +
                                meeting.second() + "date +%s.%N");
  INFO(both.output);
  CHECK(both.count("\nalive\n") == 1);
  CHECK(both.count("second 0") == 1);
  CHECK(both.count("waiting for up to") == 0);
  CHECK(both.count("taking over") == 0);
  meeting.check_output();
}

TEST_CASE("a number that another process has by now is not the owner's") {
  const Meeting meeting;
  const auto both = meeting.run(meeting.first() + kKillFirst + forge(meeting, "pid", "1") + meeting.second());
  INFO(both.output);
  CHECK(both.count("second 0") == 1);
  CHECK(both.count("taking over") == 0);
  meeting.check_output();
}

TEST_CASE("an owner of whom nothing can be known is waited for, once, and taken for dead when it is silent") {
  const Meeting meeting;
  std::string name;
  SUBCASE("another kernel: a host of that name or not") { name = "boot_id"; }
  SUBCASE("a container of its own") { name = "pid_namespace"; }
  const auto both =
      meeting.run(meeting.first() + kKillFirst + forge(meeting, name, "4026531999") + "begin=$(date +%s); " +
                  meeting.second("--silent-s 3") + "echo waited $(($(date +%s) - begin))");
  INFO(both.output);
  CHECK(both.count("which has not ended in order: waiting for up to 3 s for a sign of life") == 1);
  CHECK(both.count("taking over " + meeting.out + " after 3 s: run 0 (") == 1);
  CHECK(both.count("shows no sign of life") == 1);
  CHECK(both.count("second 0") == 1);
  for (const char* early : {"waited 0\n", "waited 1\n", "waited 2\n"}) CHECK(both.count(early) == 0);
  meeting.check_output();
}

TEST_CASE("an owner elsewhere that shows signs of life keeps its directory; one that has ended in order is no owner") {
  const Meeting meeting;
  const auto both = meeting.run(meeting.first() + forge(meeting, "boot_id", "elsewhere") + meeting.second() +
                                "kill -TERM $first; wait $first; echo first $?; " + meeting.second());
  INFO(both.output);
  CHECK(both.count("second 2") == 1);
  CHECK(both.count("is in use: run 0 (") == 1);
  CHECK(both.count("first 75") == 1);
  CHECK(both.count("second 0") == 1);
  CHECK(both.count("taking over") == 0);
  meeting.check_output();
}

TEST_CASE("a run that was silent and wakes up when another one has its directory ends with exit 4; nothing is lost") {
  const Meeting meeting;
  const auto both = meeting.run(meeting.first() + "kill -STOP $first; " + meeting.second("--restart --silent-s 2") +
                                "kill -CONT $first; wait $first; echo first $?");
  INFO(both.output);
  CHECK(both.count("second 0") == 1);
  CHECK(both.count("first 4") == 1);
  CHECK(both.count("error[io] another run (") == 1);
  CHECK(both.count(") took over " + meeting.out + "; give each run its own --output") == 1);
  CHECK(both.count("internal") == 0);
  CHECK(both.elapsed_s < 20);
  meeting.check_output();
}

TEST_CASE("a job that Slurm has started again waits for its earlier run and then takes over, though it lives") {
  const Meeting meeting;
  const auto both =
      meeting.run("export SLURM_JOB_ID=7; " + meeting.first() + meeting.second() +  // a second step of the same start
                  "export SLURM_RESTART_COUNT=1; " + meeting.second("--silent-s 3") + "wait $first; echo first $?");
  INFO(both.output);
  CHECK(both.count("second 2") == 1);
  CHECK(both.count("waiting for up to 3 s until it does") == 1);
  CHECK(both.count("belongs to the job that Slurm has started again") == 1);
  CHECK(both.count("second 0") == 1);
  CHECK(both.count("first 4") == 1);
  CHECK(both.elapsed_s < 20);
  meeting.check_output();
}

}  // namespace
}  // namespace tokenmill
