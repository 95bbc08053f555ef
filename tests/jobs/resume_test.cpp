// Jobs that were stopped, and the same command again.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>

#include "io/file.h"
#include "jobs/journal/ledger.h"
#include "jobs/output_dir.h"
#include "support/process.h"
#include "support/temp_dir.h"

namespace tokenmill {
namespace {

namespace fs = std::filesystem;

test::ProcessResult run(int ranks, const std::string& arguments) {
  const std::string launcher = ranks == 0 ? "" : std::string(TM_MPIEXEC " -n ") + std::to_string(ranks) + " ";
  return test::run_process(launcher + TM_JOB_PROGRAM + " " + arguments);
}

std::string input(int rows) {
  std::string text;
  for (int i = 0; i < rows; ++i) text += "{\"id\":" + std::to_string(i) + (i % 10 == 9 ? ",\"bad\":1}\n" : "}\n");
  return text;
}

std::string output(const std::string& directory) { return io::read_file(directory + "/output.jsonl", 1 << 30); }

/// N of "before N failed M".
int64_t before(const test::ProcessResult& result) {
  const size_t at = result.output.find("before ");
  return at == std::string::npos ? -1 : std::stoll(result.output.substr(at + 7));
}

constexpr const char* kSlow = " --commit-s 0.01 --running 3 --step-s 0.02 ";  // 600 rows: 5 s with 3 ranks

TEST_CASE("a killed rank, then other ranks: the rest is computed, the output is that of an undisturbed run") {
  const test::TempDir dir;
  const std::string in = dir.write("in.jsonl", input(600)), out = dir / "out";
  REQUIRE(run(0, dir / "undisturbed " + in).exit_code == 0);
  const auto killed = run(3, out + kSlow + "--fail 2:kill " + in);
  INFO(killed.output);
  CHECK(killed.exit_code == 128 + 9);
  CHECK_FALSE(fs::exists(out + "/output.jsonl"));
  const auto again = run(4, out + kSlow + "--replica-ranks 2 --fail 1:kill " + in);
  CHECK(again.exit_code == 128 + 9);
  const auto finished = run(2, out + " " + in);
  INFO(finished.output);
  CHECK(finished.exit_code == 0);
  CHECK(before(finished) > 0);
  CHECK(before(finished) < 600);
  CHECK(finished.count("rows 600 failed 60 ") == 1);
  CHECK(output(out) == output(dir / "undisturbed"));
  CHECK(fs::exists(out + "/journal/parts/00000-00000.jsonl"));
  CHECK(fs::exists(out + "/journal/parts/00002-00000.jsonl"));
  SUBCASE("a job that is done is done at once") {
    const auto idle = run(2, out + " " + in);
    CHECK(idle.exit_code == 0);
    CHECK(before(idle) == 600);
    CHECK(idle.count("rows 600 failed 60 ") == 1);
    CHECK(output(out) == output(dir / "undisturbed"));
    CHECK(jobs::list_parts(jobs::OutputDir(out)).size() <= 7);  // a run that computes nothing leaves no part
  }
  SUBCASE("packed inputs are unpacked again") {
    const std::string packed = dir / "packed.jsonl.gz", to = dir / "packed";
    REQUIRE(test::run_process("gzip -c " + in + " > " + packed).exit_code == 0);
    CHECK(run(2, to + kSlow + "--fail 1:kill " + packed).exit_code == 128 + 9);
    CHECK(fs::exists(to + "/journal/scratch/00000.jsonl"));
    const auto result = run(0, to + " " + packed);
    INFO(result.output);
    CHECK(result.exit_code == 0);
    CHECK(before(result) > 0);
    CHECK_FALSE(fs::exists(to + "/journal/scratch"));
  }
}

TEST_CASE("a kill costs the rows in flight and those of the last commit interval, no others") {
  const test::TempDir dir;
  const std::string in = dir.write("in.jsonl", input(600)), out = dir / "out", log = dir / "finished";
  const auto killed =  // after 20 steps, 2 s
      run(0, out + " --commit-s 0.05 --running 20 --step-s 0.1 --fail 0:kill --finished-log " + log + " " + in);
  INFO(killed.output);
  REQUIRE(killed.exit_code == 128 + 9);
  const std::string ledger = out + "/journal/ledger/00000-00000.ledger";
  const jobs::LedgerReader reader(ledger);
  std::set<int64_t> committed;
  reader.for_each([&](const jobs::LedgerEntry& entry) { committed.insert(entry.row); });
  struct stat status {};
  REQUIRE(::stat(ledger.c_str(), &status) == 0);
  const int64_t last_commit_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
  constexpr int64_t kHandOver_ns = 500'000'000;  // to the commit's thread, on a busy machine
  int64_t finished = 0, row = 0, at_ns = 0;
  for (std::istringstream lines(io::read_file(log, 1 << 20)); lines >> row >> at_ns; ++finished)
    if (at_ns < last_commit_ns - kHandOver_ns) CHECK(committed.count(row) == 1);
  CHECK(finished >= 60);
  CHECK(committed.size() >= 40);
  const auto again = run(0, out + " " + in);
  CHECK(before(again) == static_cast<int64_t>(committed.size()));
}

/// A finished job of a few rows, to be damaged and continued.
struct Finished {
  test::TempDir dir;
  std::string in, out = dir / "out", expected;
  explicit Finished(int rows = 12, const std::string& more = "") {
    in = dir.write("in.jsonl", input(rows));
    REQUIRE(run(0, out + more + " " + in).exit_code == 0);
    expected = output(out);
    fs::copy(out, dir / "whole", fs::copy_options::recursive);
  }
  std::string part() const { return out + "/journal/parts/00000-00000.jsonl"; }
  std::string ledger() const { return out + "/journal/ledger/00000-00000.ledger"; }
  void restore() const {
    fs::remove_all(out);
    fs::copy(dir / "whole", out, fs::copy_options::recursive);
    fs::remove(out + "/output.jsonl");
  }
  /// Continues the job; returns how many rows were there.
  int64_t continued(const std::string& more = "") const {
    const auto result = run(0, out + more + " " + in);
    INFO(result.output);
    CHECK(result.exit_code == 0);
    CHECK(output(out) == expected);
    return before(result);
  }
};

TEST_CASE("a journal cut or blanked anywhere loses only the rows behind") {
  const Finished job;
  const auto ledger_bytes = static_cast<int64_t>(fs::file_size(job.ledger()));
  for (const int64_t size : {int64_t{0}, int64_t{63}, int64_t{64}, int64_t{65}, ledger_bytes - 48, ledger_bytes - 1}) {
    CAPTURE(size);
    job.restore();
    fs::resize_file(job.ledger(), static_cast<uintmax_t>(size));
    CHECK(job.continued() == std::max<int64_t>(0, (size - 64) / 48));
  }
  job.restore();
  const auto part_bytes = static_cast<int64_t>(fs::file_size(job.part()));
  for (const int64_t size : {int64_t{0}, int64_t{1}, part_bytes / 2, part_bytes - 1}) {
    CAPTURE(size);
    job.restore();
    fs::resize_file(job.part(), static_cast<uintmax_t>(size));
    const int64_t there = job.continued();
    CHECK(there < 12);
    CHECK((there > 0) == (size >= part_bytes / 2));
    job.restore();  // the size is there, the bytes are not: as a lost machine leaves it
    fs::resize_file(job.part(), static_cast<uintmax_t>(size));
    fs::resize_file(job.part(), static_cast<uintmax_t>(part_bytes));
    CHECK(job.continued() == there);
  }
  job.restore();
  fs::remove(job.part());
  CHECK(job.continued() == 0);
  job.restore();
  fs::remove(job.ledger());
  CHECK(job.continued() == 0);
  job.restore();
  fs::resize_file(job.part(), static_cast<uintmax_t>(part_bytes + 1000));  // records without entries
  CHECK(job.continued() == 12);
  CHECK(static_cast<int64_t>(fs::file_size(job.part())) == part_bytes);
}

TEST_CASE("a job is continued only as what it was; what has changed is named") {
  const Finished job(12, " --fact one");
  const auto refused = [&](const std::string& arguments, const std::string& text) {
    const auto result = run(2, job.out + " " + arguments);
    INFO(result.output);
    CHECK(result.exit_code == 2);
    CHECK(result.count("error[config] output directory " + job.out + " holds ") == 1);
    CHECK(result.count(text) == 1);
    CHECK(output(job.out) == job.expected);
  };
  refused("--fact two " + job.in, "began otherwise: fact was one and is two; undo the change");
  refused(job.in, "fact was one and is gone");
  refused("--fact one " + job.in + " " + job.dir.write("more.jsonl", input(1)), "input 2 was not there and is ");
  SUBCASE("a changed input") {
    job.dir.write("in.jsonl", input(13));
    refused("--fact one " + job.in, "input 1 was " + job.in + ", changed 20");
    SUBCASE("accepted: its new rows are computed") {
      const auto result = run(2, job.out + " --fact one --accept-change " + job.in);
      INFO(result.output);
      CHECK(result.exit_code == 0);
      CHECK(before(result) == 12);
      CHECK(output(job.out).starts_with(job.expected));
      CHECK(output(job.out).find("\"row\":12,") != std::string::npos);
      CHECK(run(0, job.out + " --fact one " + job.in).exit_code == 0);  // it is the job's identity now
    }
    SUBCASE("with fewer rows than are done") {
      job.dir.write("in.jsonl", input(3));
      const auto result = run(0, job.out + " --fact one --accept-change " + job.in);
      INFO(result.output);
      CHECK(result.exit_code == 2);
      CHECK(result.count("has a result of row ") == 1);
    }
  }
  SUBCASE("an input of the same bytes that was written again") {
    fs::last_write_time(job.in, fs::last_write_time(job.in) - std::chrono::hours(1));
    refused("--fact one " + job.in, "input 1 was ");
  }
  SUBCASE("an identity that somebody edited") {
    const std::string identity = job.out + "/journal/identity";
    std::string text = io::read_file(identity, 1 << 20);
    CHECK(text.find("\nfact: one\n") != std::string::npos);
    text.replace(text.find("one"), 3, "two");
    job.dir.write("out/journal/identity", text);
    const auto result = run(0, job.out + " --fact two " + job.in);
    CHECK(result.exit_code == 4);
    CHECK(result.count("journal/identity is damaged or was edited") == 1);
  }
  SUBCASE("a journal whose removal was interrupted") {
    fs::remove(job.out + "/journal/identity");
    refused("--fact one " + job.in, "whose removal was interrupted; give --restart");
  }
  SUBCASE("a journal of another version") {
    job.dir.write("out/journal/tokenmill-journal", "tokenmill journal 1\n");
    refused("--fact one " + job.in, "by another version of tokenmill (tokenmill journal 1); give --restart");
    CHECK(run(0, job.out + " --restart --fact one " + job.in).exit_code == 0);
  }
  SUBCASE("an input among the results") {
    const auto result = run(0, job.out + " --fact one " + job.out + "/output.jsonl");
    CHECK(result.exit_code == 2);
    CHECK(result.count("is used by this run") == 1);
  }
}

TEST_CASE("--retry-errors computes the rows with errors again, and only these") {
  const Finished job(40);
  REQUIRE(run(0, job.dir / "good --good " + job.in).exit_code == 0);
  const auto still_bad = run(2, job.out + " --retry-errors " + job.in);
  INFO(still_bad.output);
  CHECK(still_bad.exit_code == 0);
  CHECK(before(still_bad) == 36);
  CHECK(still_bad.count("rows 40 failed 4 ") == 1);
  CHECK(output(job.out) == job.expected);
  const auto good = run(2, job.out + " --good --retry-errors " + job.in);
  CHECK(before(good) == 36);
  CHECK(good.count("rows 40 failed 0 ") == 1);
  CHECK(output(job.out) == output(job.dir / "good"));
  CHECK(before(run(0, job.out + " --retry-errors " + job.in)) == 40);
}

TEST_CASE("what a run left that was killed before it had a journal is in nobody's way") {
  const test::TempDir dir;
  const std::string in = dir.write("in.jsonl", input(5)), out = dir / "out";
  dir.write("out/journal.tmp.0123abcd/scratch/00000.jsonl", "unpacked");
  dir.write("out/journal.tmp.0123abcd/tokenmill-journal", "tokenmill journal 2\n");
  dir.write("out/output.jsonl.tmp.77", "half");
  dir.write("out/journal.tmp.77/mine.txt", "not tokenmill's");
  const auto result = run(0, out + " " + in);
  INFO(result.output);
  CHECK(result.exit_code == 0);
  CHECK_FALSE(fs::exists(out + "/journal.tmp.0123abcd"));
  CHECK_FALSE(fs::exists(out + "/output.jsonl.tmp.77"));
  CHECK(fs::exists(out + "/journal.tmp.77/mine.txt"));
}

}  // namespace
}  // namespace tokenmill
