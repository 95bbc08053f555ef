// Rows that bring their process down: they run alone at the end of the next run, and become errors the second time.
#include <doctest/doctest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "io/file.h"
#include "jobs/death_note.h"
#include "jobs/journal/running_rows.h"
#include "jobs/output_dir.h"
#include "kernels/core/error.h"
#include "support/process.h"
#include "support/temp_dir.h"

namespace tokenmill::jobs {
namespace {

constexpr int kRows = 300, kPoison = 123;

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::istringstream text(io::read_file(path, 1 << 30));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

struct Fixture {
  test::TempDir dir;
  std::string in, out = dir / "out";
  std::vector<std::string> expected;
  Fixture() {
    std::string rows;
    for (int i = 0; i < kRows; ++i) rows += "{\"id\":" + std::to_string(i) + "}\n";
    in = dir.write("in.jsonl", rows);
    REQUIRE(test::run_process(TM_JOB_PROGRAM " " + dir / "undisturbed " + in).exit_code == 0);
    expected = lines_of(dir / "undisturbed/output.jsonl");
  }
  test::ProcessResult run(const std::string& arguments, int ranks = 2) const {
    return test::run_process((ranks == 0 ? "" : TM_MPIEXEC " -n " + std::to_string(ranks) + " ") + TM_JOB_PROGRAM " " +
                             out + " --commit-s 0.02 --running 4 --step-s 0.005 --stall-s 2 " + arguments + " " + in);
  }
  void check_output(bool with_refused) const {
    const std::vector<std::string> lines = lines_of(out + "/output.jsonl");
    REQUIRE(lines.size() == expected.size());
    for (int row = 0; row < kRows; ++row) {
      if (row == kPoison && with_refused)
        CHECK(lines[static_cast<size_t>(row)].starts_with(
            "{\"row\":123,\"refused\":\"the process that computed this row died 2 times"));
      else
        CHECK(lines[static_cast<size_t>(row)] == expected[static_cast<size_t>(row)]);
    }
  }
};

int64_t number_behind(const test::ProcessResult& result, const std::string& word) {
  const size_t at = result.output.find(word);
  return at == std::string::npos ? -1 : std::stoll(result.output.substr(at + word.size()));
}

TEST_CASE("a row that brings its process down runs alone, last, and is an error when it does so again") {
  const Fixture f;
  struct Case {
    const char* how;
    int exit_code, ranks;
    const char* arguments = "";
  };
  for (const Case& c : {Case{"segv", 139, 2}, Case{"abort", 134, 3}, Case{"throw", 4, 2}, Case{"hang", 4, 2},
                        Case{"encode-segv", 139, 2}, Case{"encode-throw", 4, 0}, Case{"segv", 139, 0},
                        Case{"segv", 139, 4, "--replica-ranks 2 "}}) {
    CAPTURE(std::string(c.how));
    CAPTURE(c.ranks);
    const std::string arguments = c.arguments + std::string("--poison 123:") + c.how;
    const auto first = f.run(arguments, c.ranks);
    INFO(first.output);
    CHECK(first.exit_code == c.exit_code);
    const auto second = f.run(arguments, c.ranks);
    INFO(second.output);
    CHECK(second.exit_code == c.exit_code);
    CHECK(second.count("they run last, one by one") == 1);
    const auto third = f.run(arguments, c.ranks);
    INFO(third.output);
    CHECK(third.exit_code == 0);
    // The second run had done all others: those that ran beside the row in the first are 3 at most.
    CHECK(number_behind(third, "before ") >= kRows - 4);
    f.check_output(/*with_refused=*/true);
    const auto retried = f.run("--retry-errors", 2);
    INFO(retried.output);
    CHECK(retried.exit_code == 0);
    CHECK(number_behind(retried, "before ") == kRows - 1);
    f.check_output(/*with_refused=*/false);
    std::filesystem::remove_all(f.out);
  }
}

TEST_CASE("a row whose process was killed from outside is no suspect") {
  const Fixture f;
  for (int i = 0; i < 3; ++i) {
    const auto killed = f.run("--poison 123:kill");
    INFO(killed.output);
    CHECK(killed.exit_code == 137);
    CHECK(killed.count("they run last") == 0);
  }
  for (const char* signal : {"SEGV", "ABRT"}) {  // another process's
    const auto killed = f.run("--poison 123:hang --stall-s 60 & sleep 2; kill -" + std::string(signal) +
                              " $(cat /proc/$!/task/$!/children); wait; true");
    INFO(killed.output);
    CHECK(killed.count("they run last") == 0);
  }
  const auto last = f.run("");
  INFO(last.output);
  CHECK(last.exit_code == 0);
  CHECK(last.count("they run last") == 0);
  f.check_output(/*with_refused=*/false);
}

TEST_CASE("rows that ran beside one that brought its process down once have their results") {
  const Fixture f;
  CHECK(f.run("--poison 123:segv").exit_code == 139);
  const auto again = f.run("");
  INFO(again.output);
  CHECK(again.exit_code == 0);
  CHECK(again.count("they run last") == 1);
  f.check_output(/*with_refused=*/false);
  CHECK(std::filesystem::exists(f.out + "/journal/running"));
  CHECK(f.run("--restart").exit_code == 0);  // it knows these files
  CHECK(std::filesystem::is_empty(f.out + "/journal/running"));
}

TEST_CASE("deaths are counted by run and replica; a note names one row or all that ran") {
  const test::TempDir dir;
  std::filesystem::create_directories(dir / "journal/running");
  const OutputDir out(dir / "");
  const auto ran = [&](int64_t run, int64_t replica, const std::vector<int64_t>& rows) {
    RunningRows running(out.running_rows(run, replica));
    for (const int64_t row : rows) running.begin(row);
    running.begin(99);
    running.end(99);
    running.end(98);  // never began
  };
  ran(0, 0, {5, 6});
  ran(0, 1, {7});
  ran(1, 0, {6, 0});
  DeathNote::write(out.death_note(0, 0, 0), -1, "signal 11");
  DeathNote::write(out.death_note(0, 0, 3), -1, "signal 11");  // a follower's: one death all the same
  DeathNote::write(out.death_note(1, 0, 0), -1, "no progress");
  DeathNote::write(out.death_note(2, 0, 0), 8, "signal 6");  // without running rows
  const auto deaths = read_deaths(out);
  REQUIRE(deaths.size() == 4);
  CHECK(deaths.at(0).count == 1);
  CHECK(deaths.at(5).count == 1);
  CHECK(deaths.at(5).cause == "signal 11");
  CHECK(deaths.at(6).count == 2);
  CHECK(deaths.at(6).cause == "no progress");
  CHECK(deaths.at(8).count == 1);
  remove_idle_running(out);
  CHECK_FALSE(std::filesystem::exists(out.running_rows(0, 1)));
  CHECK(read_deaths(out).size() == 4);
}

}  // namespace
}  // namespace tokenmill::jobs
