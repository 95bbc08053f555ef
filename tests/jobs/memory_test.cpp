// Memory does not grow with the number of rows.
#include <doctest/doctest.h>

#include <string>

#include "support/process.h"
#include "support/temp_dir.h"

namespace tokenmill {
namespace {

/// Peak resident KiB of a whole job of `rows` short rows on one rank, indexing and merge included.
long peak_kib(int rows) {
  const test::TempDir dir;
  std::string text;
  for (int i = 0; i < rows; ++i) text += "{\"id\":" + std::to_string(i) + ",\"prompt\":\"short\"}\n";
  const auto result = test::run_process(std::string(TM_JOB_PROGRAM) + " " + dir / "out" + " --running 256 " +
                                        dir.write("in.jsonl", text));
  INFO(result.output);
  REQUIRE(result.exit_code == 0);
  REQUIRE(result.count("rows " + std::to_string(rows) + " failed 0") == 1);
  return std::stol(result.output.substr(result.output.find("peak_kib ") + 9));
}

TEST_CASE("a million rows need at most 64 MB more than ten thousand") {
  const long few = peak_kib(10'000);
  const long many = peak_kib(1'000'000);
  MESSAGE("peak resident KiB: 10,000 rows ", few, ", 1,000,000 rows ", many);
  CHECK(many - few < 64 * 1024);
}

}  // namespace
}  // namespace tokenmill
