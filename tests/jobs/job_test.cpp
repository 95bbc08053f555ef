// Whole jobs with the fake codec and generator, under several launchers.
#include "jobs/job.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "fakes.h"
#include "io/file.h"
#include "io/json.h"
#include "support/process.h"
#include "support/temp_dir.h"

namespace tokenmill {
namespace {

namespace fs = std::filesystem;

test::ProcessResult run(int ranks, const std::string& arguments) {
  const std::string launcher = ranks == 0 ? "" : std::string(TM_MPIEXEC " -n ") + std::to_string(ranks) + " ";
  return test::run_process(launcher + TM_JOB_PROGRAM + " " + arguments);
}

/// rows records, of which every 10th is bad; blank lines and CRLF between them.
std::string input(int rows, const std::string& tag) {
  std::string text = "\xEF\xBB\xBF";
  for (int i = 0; i < rows; ++i) {
    text += "{\"id\":\"" + tag + std::to_string(i) + "\"" + (i % 10 == 9 ? ",\"bad\":1}" : "}");
    text += i % 3 == 0 ? "\r\n" : "\n";
    if (i % 7 == 0) text += " \t\r\n\n";
  }
  return text;
}

std::string output(const std::string& directory) { return io::read_file(directory + "/output.jsonl", 1 << 30); }

TEST_CASE("output bytes are the same with 1, 2 and 4 ranks, and every row occurs once in input order") {
  const test::TempDir dir;
  const std::string inputs = dir.write("a.jsonl", input(700, "a")) + " " + dir.write("empty.jsonl", "") + " " +
                             dir.write("b.jsonl", input(2500, "b"));
  const auto alone = run(0, dir / "out0" + " " + inputs);
  INFO(alone.output);
  REQUIRE(alone.exit_code == 0);
  CHECK(alone.count("rows 3200 failed 320 replicas 1 last_phase 2") == 1);
  CHECK(alone.count("progress 3200 of 3200") == 1);
  const std::string expected = output(dir / "out0");
  size_t at = 0;
  for (int64_t row = 0; row < 3200; ++row) {
    const size_t end = expected.find('\n', at);
    REQUIRE(end != std::string::npos);
    const io::JsonValue value = io::parse_json(std::string_view(expected).substr(at, end - at), "output");
    REQUIRE(value.at("row").as_int64() == row);
    REQUIRE(value.at("file").as_string() == (row < 700 ? "a.jsonl" : "b.jsonl"));
    at = end + 1;
  }
  CHECK(at == expected.size());
  for (const int ranks : {1, 2, 4}) {
    const std::string directory = dir / ("out" + std::to_string(ranks));
    const auto result = run(ranks, directory + " --running 3 --step-s 0.0005 --shared-merge-bytes 0 " + inputs);
    INFO(result.output);
    REQUIRE(result.exit_code == 0);
    CHECK(result.count("replicas " + std::to_string(ranks)) == 1);
    CHECK(output(directory) == expected);
    if (ranks == 4)
      for (int rank = 0; rank < 4; ++rank)  // everyone worked
        CHECK(result.count("replica " + std::to_string(rank) + " rows 0\n") == 0);
    CHECK(fs::exists(directory + "/run.yaml"));
    CHECK_FALSE(fs::exists(directory + "/journal/scratch"));
  }
}

/// "NAME RANK steps N" of a run's output; -1: not there.
int64_t steps_of(const test::ProcessResult& result, const std::string& name, int rank) {
  const std::string before = name + " " + std::to_string(rank) + " steps ";
  const size_t at = result.output.find(before);
  return at == std::string::npos ? -1 : std::stoll(result.output.substr(at + before.size()));
}

TEST_CASE("replicas of several ranks: leaders do the rows, the others every step of their leader") {
  const test::TempDir dir;
  const std::string in = dir.write("in.jsonl", input(600, "a"));
  REQUIRE(run(0, dir / "alone" + " " + in).exit_code == 0);
  for (const int replicas : {1, 2}) {
    const std::string directory = dir / ("out" + std::to_string(replicas));
    const auto result =
        run(4, directory + " --running 3 --step-s 0.0005 --replica-ranks " + std::to_string(4 / replicas) + " " + in);
    INFO(result.output);
    REQUIRE(result.exit_code == 0);
    CHECK(result.count("rows 600 failed 60 replicas " + std::to_string(replicas)) == 1);
    CHECK(output(directory) == output(dir / "alone"));
    for (int rank = 0; rank < 4; ++rank) {
      const int leader = replicas == 1 ? 0 : rank / 2 * 2;
      CHECK(steps_of(result, "leader", leader) > 0);
      CHECK(steps_of(result, "follower", rank) == (rank == leader ? -1 : steps_of(result, "leader", leader)));
      // One part a replica, none for the others.
      CHECK(fs::exists(directory + "/journal/parts/00000-0000" + std::to_string(rank) + ".jsonl") == (rank < replicas));
    }
  }
}

TEST_CASE("a replica without rows, and one that is done long before the other, let their ranks go") {
  const test::TempDir dir;
  const auto empty = run(4, dir / "empty --replica-ranks 2 " + dir.write("empty.jsonl", ""));
  INFO(empty.output);
  CHECK(empty.exit_code == 0);
  CHECK(empty.count("rows 0 failed 0 replicas 2") == 1);
  const auto one = run(4, dir / "one --replica-ranks 2 " + dir.write("one.jsonl", input(1, "a")));
  INFO(one.output);
  CHECK(one.exit_code == 0);
  CHECK(one.count(" rows 0\n") == 1);
  CHECK(one.count(" rows 1\n") == 1);
  const auto uneven = run(4, dir / "uneven --step-s 0.002 --running 3 --max-chunk-rows 1 --replica-ranks 2 " +
                                 dir.write("uneven.jsonl", "{\"long\":1}\n" + input(40, "a")));
  INFO(uneven.output);
  CHECK(uneven.exit_code == 0);
  for (const int leader : {0, 2}) CHECK(steps_of(uneven, "leader", leader) == steps_of(uneven, "follower", leader + 1));
  const int64_t first = steps_of(uneven, "leader", 0), second = steps_of(uneven, "leader", 2);
  CHECK(std::max(first, second) >= test::FakeCodec::kLongSteps);
  CHECK(std::min(first, second) < test::FakeCodec::kLongSteps / 2);
}

TEST_CASE("an input that is written to while the job runs ends it with its name, and nothing is merged") {
  const test::TempDir dir;
  for (const std::string place : {"rewrite", "rewrite_quietly"}) {
    for (const int ranks : {0, 2}) {
      CAPTURE(place);
      CAPTURE(ranks);
      const std::string in = dir.write("in.jsonl", input(3000, "a")), out = dir / (place + std::to_string(ranks));
      const auto changed = run(ranks, out + " --step-s 0.0005 --fail 0:" + place + " " + in);
      INFO(changed.output);
      CHECK(changed.exit_code == 4);
      CHECK(changed.count(place == "rewrite" ? in + " was written to while the job ran"
                                             : "inputs changed while the job ran (input 1 was " + in) == 1);
      CHECK_FALSE(fs::exists(out + "/output.jsonl"));
      CHECK(run(ranks, out + " " + in).exit_code == 2);  // of another version than the rows that are done
      const auto again = run(ranks, out + " --restart " + in);
      INFO(again.output);
      CHECK(again.exit_code == 0);
      CHECK(output(out).find("\"row\":2999,") != std::string::npos);
    }
  }
}

TEST_CASE("ranks that are no multiple of a replica are refused") {
  const test::TempDir dir;
  const auto result = run(3, dir / "out --replica-ranks 2 " + dir.write("in.jsonl", input(5, "a")));
  INFO(result.output);
  CHECK(result.exit_code == 2);
  CHECK(result.count("error[") == 1);
  CHECK_FALSE(fs::exists(dir / "out"));
}

TEST_CASE("what is counted reaches rank 0 while the job runs, and all of it at the end") {
  const test::TempDir dir;
  const auto result =
      run(2, dir / "out" + " --metrics-s 0.05 --running 3 --step-s 0.002 " + dir.write("a.jsonl", input(1500, "a")));
  INFO(result.output);
  REQUIRE(result.exit_code == 0);
  CHECK(result.count(
            "metrics calls some, 2 replicas, rows some, distributions some; at the end 3000 tokens in 1500 rows") == 1);
}

TEST_CASE("rows that begin alike are handed out together, and the output stays in input order") {
  const test::TempDir dir;
  std::string text;
  for (int i = 0; i < 2000; ++i)
    text += "{\"prompt\":\"" + std::string(400, static_cast<char>('a' + i * 7 % 13)) + std::to_string(i) + "\"}\n";
  const std::string in = dir.write("in.jsonl", text);
  for (const int ranks : {0, 3}) {
    const std::string directory = dir / ("out" + std::to_string(ranks));
    const auto result = run(ranks, directory + " --running 5 " + in);
    INFO(result.output);
    REQUIRE(result.exit_code == 0);
    CHECK(io::read_file(directory + "/run.yaml", 1 << 20).find("  plan: ") != std::string::npos);
    const std::string lines = output(directory);
    size_t at = 0;
    for (int64_t row = 0; row < 2000; ++row) {
      const std::string begin =
          "{\"row\":" + std::to_string(row) + ",\"file\":\"in.jsonl\",\"line\":" + std::to_string(row + 1) + ",";
      REQUIRE(lines.compare(at, begin.size(), begin) == 0);
      at = lines.find('\n', at) + 1;
    }
    CHECK(at == lines.size());
  }
  CHECK(output(dir / "out0") == output(dir / "out3"));
  // In the order of completion: one group after the other.
  const std::string part = io::read_file(dir / "out0/journal/parts/00000-00000.jsonl", 1 << 30);
  CHECK(part.find("\"row\":13,") < part.find("\"row\":1,"));
}

TEST_CASE("inputs without rows give an empty output and a normal exit") {
  const test::TempDir dir;
  const std::string inputs = dir.write("zero.jsonl", "") + " " + dir.write("blank.jsonl", "\n \r\n\t\n") + " " +
                             dir.write("bom.jsonl", "\xEF\xBB\xBF");
  for (const int ranks : {0, 2}) {
    const std::string directory = dir / ("out" + std::to_string(ranks));
    const auto result = run(ranks, directory + " " + inputs);
    INFO(result.output);
    CHECK(result.exit_code == 0);
    CHECK(output(directory).empty());
  }
}

TEST_CASE("results without a journal are refused with exit 2, and --restart removes only what tokenmill wrote") {
  const test::TempDir dir;
  const std::string in = dir.write("in.jsonl", input(5, "x"));
  const std::string out = dir / "out";
  dir.write("out/output.jsonl", "");
  dir.write("out/run.yaml", "");
  dir.write("out/notes.txt", "mine");
  dir.write("out/output.jsonl.tmp.123", "left by a killed run");
  const auto refused = run(2, out + " " + in);
  CHECK(refused.exit_code == 2);
  CHECK(refused.count("error[") == 1);
  CHECK(refused.count("error[config] output directory " + out +
                      " holds results of an earlier run (output.jsonl, run.yaml) without their journal") == 1);
  dir.write("in.jsonl", input(8, "y"));
  const auto restarted = run(2, out + " --restart " + in);
  INFO(restarted.output);
  CHECK(restarted.exit_code == 0);
  CHECK(restarted.count("rows 8 failed 0") == 1);
  CHECK(fs::exists(out + "/notes.txt"));
  CHECK_FALSE(fs::exists(out + "/output.jsonl.tmp.123"));
}

TEST_CASE("a missing input is one message and exit 2, and the output directory is not touched") {
  const test::TempDir dir;
  const auto result = run(2, dir / "out" + " " + dir / "none.jsonl");
  CHECK(result.exit_code == 2);
  CHECK(result.count("error[input] input " + dir / "none.jsonl" + " does not exist") == 1);
  CHECK_FALSE(fs::exists(dir / "out"));
}

TEST_CASE("packed inputs give the same rows as plain ones") {
  const test::TempDir dir;
  const std::string plain = dir.write("in.jsonl", input(3000, "z"));
  REQUIRE(run(0, dir / "plain" + " " + plain).exit_code == 0);
  REQUIRE(test::run_process("gzip -k " + plain + " && mkdir " + dir / "gz" + " && mv " + plain + ".gz " +
                            dir / "gz/in.jsonl")
              .exit_code == 0);
  const auto result = run(2, dir / "packed" + " " + dir / "gz/in.jsonl");
  INFO(result.output);
  CHECK(result.exit_code == 0);
  CHECK(output(dir / "packed") == output(dir / "plain"));
  CHECK_FALSE(fs::exists(dir / "packed/journal/scratch"));
}

TEST_CASE("ranks with another output directory under the same name are found out") {
  const test::TempDir dir;
  const std::string in = dir.write("in.jsonl", input(5, "x"));
  fs::create_directories(dir / "elsewhere");
  const auto result =
      test::run_process("cd " + dir.path() + " && " TM_MPIEXEC " -n 2 " TM_JOB_PROGRAM " out --elsewhere " +
                        dir / "elsewhere" + " " + in);
  INFO(result.output);
  CHECK(result.exit_code == 4);
  CHECK(result.count("error[io] rank 1 of 2 on ") == 1);
  CHECK(result.count("not the one that rank 0 sees") == 1);
}

}  // namespace
}  // namespace tokenmill
