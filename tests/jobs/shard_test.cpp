// Shards of one input, each computed by runs of its own.
#include "jobs/shard.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "io/file.h"
#include "jobs/merge_jobs.h"
#include "kernels/core/error.h"
#include "support/process.h"
#include "support/temp_dir.h"

namespace tokenmill {
namespace {

using jobs::Shard;

TEST_CASE("shards are equal stretches of the rows, in order, that leave none out") {
  for (const int64_t num_rows : {0, 1, 7, 1000})
    for (const int64_t count : {1, 2, 3, 16}) {
      CAPTURE(num_rows);
      CAPTURE(count);
      int64_t next = 0;
      for (int64_t index = 0; index < count; ++index) {
        const jobs::RowRange rows = Shard{index, count}.rows_of(num_rows);
        CHECK(rows.begin == next);
        CHECK(rows.size() >= num_rows / count);
        CHECK(rows.size() <= num_rows / count + 1);
        next = rows.end;
      }
      CHECK(next == num_rows);
    }
}

TEST_CASE("the directories of shards are found whether all have begun or not; of two counts neither is chosen") {
  const test::TempDir dir;
  const std::string out = dir / "out";
  CHECK(Shard{}.directory(out) == out);
  CHECK(jobs::shard_directories(out).empty());
  std::filesystem::create_directories(Shard{1, 3}.directory(out));
  std::filesystem::create_directories(out + "/shard-1-of-4");  // not a name that a run gives
  CHECK(jobs::shard_directories(out) == std::vector<std::string>{out + "/shard-00000-of-00003",
                                                                 out + "/shard-00001-of-00003",
                                                                 out + "/shard-00002-of-00003"});
  std::filesystem::create_directories(Shard{0, 2}.directory(out));
  CHECK_THROWS_WITH_AS(jobs::shard_directories(out), doctest::Contains("holds shards of "), Error);
}

TEST_CASE("a shard runs beside those of its own count only, a run of all rows beside none") {
  const test::TempDir dir;
  const std::string out = dir / "out";
  const auto refusal = [&](Shard shard) {
    try {
      jobs::check_division(shard, out);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kConfig);
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal(Shard{}) == "");
  CHECK(refusal(Shard{1, 3}) == "");
  std::filesystem::create_directories(out + "/journal");
  CHECK(refusal(Shard{}) == "");
  CHECK(refusal(Shard{1, 3}).find(out + " holds a job of all rows (" + out + "/journal)") != std::string::npos);
  std::filesystem::remove(out + "/journal");
  for (const int64_t index : {3, 1}) std::filesystem::create_directories(Shard{index, 4}.directory(out));
  CHECK(refusal(Shard{3, 4}) == "");
  CHECK(refusal(Shard{0, 4}) == "");
  CHECK(refusal(Shard{}).find(
            "(shard-00001-of-00004 and 1 more), which merge would not put together with a run of all rows") !=
        std::string::npos);
  CHECK(refusal(Shard{0, 8})
            .find("(shard-00001-of-00004 and 1 more), which merge would not put together with one of 8") !=
        std::string::npos);
}

jobs::JobsMerged merge_lines(const std::vector<std::string>& directories, const std::string& path, bool partial) {
  const auto lines = [&](bool some_missing) {
    CHECK(some_missing == partial);
    jobs::MergeOutputs outputs;
    outputs.push_back(std::make_unique<io::LineWriter>(path));
    return outputs;
  };
  return jobs::merge_jobs(directories, {path}, lines, partial);
}

TEST_CASE("shards merge to the bytes of one run over all rows, also when one was killed and continued") {
  const test::TempDir dir;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "{\"id\":" + std::to_string(i) + "}\n";
  const std::string in = dir.write("in.jsonl", text), program = TM_JOB_PROGRAM " ";
  REQUIRE(test::run_process(program + dir / "whole" + " " + in).exit_code == 0);
  std::vector<std::string> directories;
  for (int64_t index = 0; index < 3; ++index) {
    const Shard shard{index, 3};
    directories.push_back(shard.directory(dir / "out"));
    const std::string command = program + directories.back() + " --shard " + std::to_string(index) + "/3 ";
    if (index == 1) {
      CHECK(test::run_process(command + "--commit-s 0.01 --running 1 --step-s 0.01 --fail 0:kill " + in).exit_code !=
            0);
      CHECK_THROWS_WITH_AS(merge_lines(directories, dir / "merged", false), doctest::Contains(" of 333 rows"), Error);
      CHECK(merge_lines(directories, dir / "merged", true).rows < 667);
    }
    const auto result = test::run_process(
        (index == 2 ? std::string(TM_MPIEXEC " -n 2 ") + command + "--shared-merge-bytes 1 " : command) + in);
    INFO(result.output);
    CHECK(result.exit_code == 0);
    CHECK(result.count("rows " + std::to_string(shard.rows_of(1000).size()) + " failed") == 1);
  }
  CHECK(merge_lines(directories, dir / "merged", false).rows == 1000);
  const std::string whole = io::read_file(dir / "whole/output.jsonl", 1 << 30);
  CHECK(io::read_file(dir / "merged", 1 << 30) == whole);
  std::string joined;
  for (const std::string& directory : directories) joined += io::read_file(directory + "/output.jsonl", 1 << 30);
  CHECK(joined == whole);
}

}  // namespace
}  // namespace tokenmill
