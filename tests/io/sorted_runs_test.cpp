#include "io/sorted_runs.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <vector>

#include "kernels/core/error.h"
#include "tests/support/temp_dir.h"

using namespace tokenmill;

namespace {

struct Pair {
  uint32_t key = 0, value = 0;
  auto operator<=>(const Pair&) const = default;
};

}  // namespace

TEST_CASE("values come back in order, whatever memory holds, and the file is gone") {
  const test::TempDir dir;
  std::mt19937 random(1);
  for (const size_t count : {0, 1, 99, 100, 101, 200, 12345}) {
    for (const bool spills : {false, true}) {
      CAPTURE(count);
      CAPTURE(spills);
      std::vector<Pair> values;
      io::SortedRuns<Pair> runs(spills ? dir / "runs" : "", 100);
      for (size_t i = 0; i < count; ++i) {
        values.push_back({static_cast<uint32_t>(random() % 1000), static_cast<uint32_t>(i)});
        runs.add(values.back());
      }
      CHECK(std::filesystem::exists(dir / "runs") == (spills && count >= 100));
      std::sort(values.begin(), values.end());
      std::vector<Pair> found;
      runs.take_all([&](const Pair& value) { found.push_back(value); });
      CHECK(found == values);
      CHECK_FALSE(std::filesystem::exists(dir / "runs"));
    }
  }
}

TEST_CASE("what is not taken leaves no file, and a file that cannot be made is named") {
  const test::TempDir dir;
  {
    io::SortedRuns<int> runs(dir / "runs", 2);
    for (int i = 0; i < 5; ++i) runs.add(i);
    CHECK(std::filesystem::exists(dir / "runs"));
  }
  CHECK_FALSE(std::filesystem::exists(dir / "runs"));
  io::SortedRuns<int> nowhere(dir / "none/runs", 1);
  CHECK_THROWS_WITH_AS(nowhere.add(1), doctest::Contains("none/runs"), Error);
}
