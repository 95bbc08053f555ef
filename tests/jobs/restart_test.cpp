// What --restart removes, and when it does.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <string>

#include "io/file.h"
#include "jobs/job.h"
#include "support/process.h"
#include "support/temp_dir.h"

namespace tokenmill {
namespace {

namespace fs = std::filesystem;

test::ProcessResult run(const std::string& arguments) {
  return test::run_process(std::string(TM_JOB_PROGRAM) + " " + arguments);
}

std::string input(int rows) {
  std::string text;
  for (int i = 0; i < rows; ++i) text += "{\"id\":" + std::to_string(i) + "}\n";
  return text;
}

/// Every file below a directory with its bytes.
std::map<std::string, std::string> contents(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    if (entry.is_regular_file() && !entry.is_symlink())
      files[entry.path().string()] = io::read_file(entry.path().string(), 1 << 30);
    else
      files[entry.path().string()] = "";
  return files;
}

/// A directory "out" with the results of 5 rows.
struct Finished {
  test::TempDir dir;
  std::string in = dir.write("in.jsonl", input(5)), out = dir / "out";
  Finished() { REQUIRE(run(out + " " + in).exit_code == 0); }

  /// --restart ends with the code, says the text and leaves every file as it was.
  void check_untouched(const std::string& arguments, int exit_code, const std::string& text) const {
    const auto before = contents(out);
    const auto result = run(out + " --restart " + arguments);
    INFO(result.output);
    CHECK(result.exit_code == exit_code);
    CHECK(result.count(text) == 1);
    CHECK(contents(out) == before);
  }
};

TEST_CASE("--restart with a damaged packed input leaves the old results as they were") {
  const Finished old;
  const std::string packed = old.dir / "packed.jsonl.gz";
  REQUIRE(test::run_process("gzip -c " + old.dir.write("big.jsonl", input(20000)) + " > " + packed).exit_code == 0);
  fs::resize_file(packed, fs::file_size(packed) / 2);
  old.check_untouched(old.in + " " + packed, 4, "gzip data is damaged");
  const auto good = run(old.out + " --restart " + old.in);
  INFO(good.output);
  CHECK(good.exit_code == 0);
}

TEST_CASE("a first run that fails before its rows leaves a directory that needs no --restart") {
  const test::TempDir dir;
  const std::string packed = dir.write("in.jsonl.gz", "\x1f\x8b\x08\x00 and no more");
  CHECK(run(dir / "out" + " " + packed).exit_code == 4);
  CHECK(fs::is_empty(dir / "out"));
}

TEST_CASE("a journal that cannot be looked at is no reason to replace it") {
  const Finished old;
  fs::rename(old.out + "/journal", old.dir / "kept");
  fs::create_symlink("journal", old.out + "/journal");  // a link to itself: what a missing permission is to others than root
  const auto result = run(old.out + " " + old.in);
  INFO(result.output);
  CHECK(result.exit_code == 4);
  CHECK(result.count("the journal cannot be looked at: ") == 1);
  CHECK(result.count("--restart") == 0);
}

TEST_CASE("a link with the name of a result ends a run before it computes anything, and stays") {
  const Finished old;
  fs::rename(old.out + "/output.jsonl", old.dir / "kept.jsonl");
  fs::create_symlink(old.dir / "kept.jsonl", old.out + "/output.jsonl");
  const auto result = run(old.out + " " + old.in);
  INFO(result.output);
  CHECK(result.exit_code == 4);
  CHECK(result.count(old.out + "/output.jsonl: is a symbolic link (to " + (old.dir / "kept.jsonl") + ")") == 1);
  CHECK(fs::is_symlink(old.out + "/output.jsonl"));
}

TEST_CASE("--restart never removes what its own run reads") {
  const Finished old;
  old.check_untouched(old.out + "/output.jsonl", 2, "that it replaces");
  old.check_untouched("--protect " + old.out + "/run.yaml " + old.in, 2, old.out + "/run.yaml is used by this run");
  fs::create_symlink(old.out + "/run.yaml", old.dir / "template");
  old.check_untouched("--protect " + old.dir / "template" + " " + old.in, 2, "template is used by this run");
}

TEST_CASE("--restart refuses what tokenmill did not write, by name") {
  const Finished old;
  SUBCASE("a directory with the name of a result") {
    fs::remove(old.out + "/output.jsonl");
    old.dir.write("out/output.jsonl/mine.txt", "mine");
    old.check_untouched(old.in, 2, "output.jsonl (a directory)");
  }
  SUBCASE("files in the journal") {
    old.dir.write("out/journal/notes.txt", "mine");
    old.dir.write("out/journal/parts/00000.jsonl.bak", "mine");
    old.check_untouched(old.in, 2, "journal/notes.txt (unknown), journal/parts/00000.jsonl.bak (unknown);");
  }
  SUBCASE("a journal of something else") {
    fs::remove_all(old.out + "/journal");
    old.dir.write("out/journal/parts/00000.jsonl", "mine");
    old.check_untouched(old.in, 2, "journal (without tokenmill's tokenmill-journal file)");
  }
  SUBCASE("links out of the directory") {
    old.dir.write("elsewhere/00000.jsonl", "mine");
    fs::remove_all(old.out + "/journal/parts");
    fs::create_directory_symlink(old.dir / "elsewhere", old.out + "/journal/parts");
    old.check_untouched(old.in, 2, "journal/parts (a symbolic link)");
    CHECK(fs::exists(old.dir / "elsewhere/00000.jsonl"));
  }
  SUBCASE("names that only look like temporaries stay, without a word") {
    old.dir.write("out/output.jsonl.tmp.mine", "mine");
    CHECK(run(old.out + " --restart " + old.in).exit_code == 0);
    CHECK(fs::exists(old.out + "/output.jsonl.tmp.mine"));
  }
}

TEST_CASE("--restart removes what killed runs left: temporaries, unpacked inputs, a journal that was not in place yet") {
  const Finished old;
  old.dir.write("out/run.yaml.tmp.77", "");
  old.dir.write("out/journal/scratch/00000.jsonl", "unpacked");
  old.dir.write("out/journal/row_metrics.00003.jsonl", "times");
  old.dir.write("out/journal.tmp.89ab/tokenmill-journal", "tokenmill journal 2\n");
  old.dir.write("out/journal.tmp.89ab/owner.new", "");
  old.dir.write("out/journal/ledger/00007.ledger", "of an older version");
  old.dir.write("out/journal.tmp.0000aaaa/tokenmill-journal", "");
  old.dir.write("out/journal.tmp.1111bbbb/tokenmill-journal", std::string(20, '\0'));
  fs::create_directories(old.out + "/journal.tmp.0123abcd");
  fs::copy(old.out + "/journal", old.out + "/journal.tmp.4567cdef", fs::copy_options::recursive);
  const auto result = run(old.out + " --restart " + old.in);
  INFO(result.output);
  CHECK(result.exit_code == 0);
  for (const char* name : {"run.yaml.tmp.77", "journal/scratch", "journal/row_metrics.00003.jsonl",
                           "journal.tmp.0000aaaa", "journal.tmp.1111bbbb", "journal.tmp.0123abcd",
                           "journal.tmp.4567cdef", "journal.tmp.89ab"})
    CHECK_FALSE(fs::exists(fs::path(old.out) / name));
}

TEST_CASE("a run whose journal is removed says so") {
  const test::TempDir dir;
  const std::string in = dir.write("in.jsonl", input(3000)), out = dir / "out";
  const auto result = test::run_process(
      std::string(TM_JOB_PROGRAM " ") + out + " --running 1 --step-s 0.01 " + in + " & first=$!; until test -s " + out +
      "/journal/parts/00000-00000.jsonl; do sleep 0.1; done; rm -r " + out + "/journal; wait $first; echo first $?");
  INFO(result.output);
  CHECK(result.count("first 4") == 1);
  CHECK(result.count("the journal in " + out + " was removed while this run used it") == 1);
}

}  // namespace
}  // namespace tokenmill
