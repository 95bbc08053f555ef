// A merge whose ranks write stretches of one file, on several ranks.
#include "jobs/merge_shared.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "io/file.h"
#include "jobs/commit.h"
#include "kernels/core/error.h"
#include "parallel/mpi.h"
#include "tests/support/temp_dir.h"

namespace tokenmill::jobs {
namespace {

parallel::FatalPolicy policy() {
  return {.exit_code = [](ErrorKind) { return 1; },
          .print = [](const Error& e) { std::fprintf(stderr, "%s\n", e.what()); }};
}

std::string record(int64_t row) {
  return "{\"row\":" + std::to_string(row) + ",\"text\":\"" + std::string(static_cast<size_t>(row * 37 % 400), 'x') + "\"}";
}

/// On rank 0: rows in three parts of two runs, some of them in both; the later run's count.
struct Journal {
  explicit Journal(const parallel::Comm& world) {
    if (world.rank() == 0) dir = std::make_unique<test::TempDir>();
    output = dir ? *dir / "output.jsonl" : "";
    parallel::broadcast_bytes(world, output, 0);
  }
  void write(int64_t rows) {
    if (!dir) return;
    std::vector<int64_t> order(static_cast<size_t>(rows));
    std::iota(order.begin(), order.end(), 0);
    std::mt19937_64 random(3);
    for (size_t i = 0; i < order.size(); ++i) std::swap(order[i], order[std::min(order.size() - 1, i + random() % 64)]);
    for (int part = 0; part < 3; ++part) {
      parts.push_back({*dir / (std::to_string(part) + ".jsonl"), *dir / (std::to_string(part) + ".ledger"), part / 2});
      Commit commit(parts.back(), {}, [](const std::exception& e) { FAIL(e.what()); });
      for (const int64_t row : order) {
        const bool again = part == 2 && row % 11 == 0;
        if (row % 3 == part || again)
          commit.push({row, row % 11 == 0 && !again && part < 2 ? "an earlier result" : record(row), row % 10 == 3}, 0);
      }
      commit.close();
      if (commit.stats().rows == 0) parts.pop_back();  // there are no files
    }
    for (int64_t row = 0; row < rows; ++row) expected += record(row) + "\n";
  }
  std::unique_ptr<test::TempDir> dir;
  std::vector<PartPaths> parts;
  std::string output, expected;
};

int num_files(const std::string& path) {
  const auto directory = std::filesystem::path(path).parent_path();
  return static_cast<int>(std::distance(std::filesystem::directory_iterator(directory), std::filesystem::directory_iterator()));
}

TEST_CASE("ranks write one file with the bytes that one rank writes") {
  parallel::MpiSession session(policy());
  const parallel::Comm& world = session.world();
  for (const int64_t rows : {0, 1, 2, 5000})
    for (const int64_t alignment : {1, 1000, 1 << 22})
      for (const bool has_other_work : {false, true}) {
        CAPTURE(rows);
        CAPTURE(alignment);
        CAPTURE(has_other_work);
        Journal journal(world);
        journal.write(rows);
        int worked = 0;
        SharedMergeOptions options{.merge = {.window_rows = 700, .batch_bytes = 1 << 16}, .alignment = alignment};
        if (has_other_work) options.other_work = [&] { ++worked; };
        const MergeTotals totals = merge_shared(journal.parts, {0, rows}, journal.output, world, options);
        CHECK(totals.rows == rows);
        CHECK(totals.failed == (rows + 6) / 10);
        CHECK(worked == (has_other_work && world.rank() == 0 ? 1 : 0));
        if (world.rank() == 0) {
          CHECK(io::read_file(journal.output, 1 << 30) == journal.expected);
          CHECK(num_files(journal.output) == 1 + 2 * static_cast<int>(journal.parts.size()));
        }
        parallel::agree(world, std::nullopt);
      }
}

TEST_CASE("what fails on one rank fails on all, and the earlier file stays") {
  parallel::MpiSession session(policy());
  const parallel::Comm& world = session.world();
  Journal journal(world);
  journal.write(5000);
  if (world.rank() == 0) {
    journal.dir->write("output.jsonl", "earlier");
    std::string part = io::read_file(journal.parts[1].part, 1 << 30);
    part[part.size() - 5] ^= 1;
    journal.dir->write("1.jsonl", part);
  }
  CHECK_THROWS_WITH_AS(merge_shared(journal.parts, {0, 5000}, journal.output, world),
                       doctest::Contains("1.jsonl: the record of row"), parallel::AgreedError);
  CHECK_THROWS_WITH_AS(merge_shared(journal.parts, {0, 5001}, journal.output, world),
                       doctest::Contains("row 5000 has no result in any part"), parallel::AgreedError);
  if (world.rank() != 0) return;
  CHECK(io::read_file(journal.output, 100) == "earlier");
  CHECK(num_files(journal.output) == 7);
}

}  // namespace
}  // namespace tokenmill::jobs
