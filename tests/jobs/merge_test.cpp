#include "jobs/merge.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "io/file.h"
#include "jobs/commit.h"
#include "jobs/journal/ledger.h"
#include "kernels/core/error.h"
#include "support/temp_dir.h"

namespace tokenmill::jobs {
namespace {

std::string record(int64_t row) {
  return "{\"row\":" + std::to_string(row) + ",\"text\":\"" + std::string(static_cast<size_t>(row * 37 % 400), 'x') +
         "\"}";
}

std::string merged(int64_t rows) {
  std::string text;
  for (int64_t row = 0; row < rows; ++row) text += record(row) + "\n";
  return text;
}

/// Parts written through Commit: `order` is dealt to the parts by the generator.
struct Journal {
  test::TempDir dir;
  std::vector<PartPaths> parts;
  void write(const std::vector<std::vector<int64_t>>& rows_by_part) {
    for (size_t part = 0; part < rows_by_part.size(); ++part) {
      parts.push_back({dir / (std::to_string(part) + ".jsonl"), dir / (std::to_string(part) + ".ledger")});
      Commit commit(parts.back(), {}, [](const std::exception& e) { FAIL(e.what()); });
      for (const int64_t row : rows_by_part[part]) commit.push({row, record(row), row % 10 == 3}, 0);
      commit.close();
    }
  }
  std::string output() const { return io::read_file(dir / "output.jsonl", 1 << 30); }
};

/// Rows dealt to parts, locally shuffled as a batch finishes them.
std::vector<std::vector<int64_t>> deal(int64_t rows, size_t parts, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = 0; i < order.size(); ++i) std::swap(order[i], order[std::min(order.size() - 1, i + random() % 64)]);
  std::vector<std::vector<int64_t>> dealt(parts);
  for (const int64_t row : order) dealt[random() % parts].push_back(row);
  return dealt;
}

TEST_CASE("parts in any order merge to rows in order, whatever the window and the batch") {
  for (const size_t parts : {1, 3, 40}) {
    Journal journal;
    journal.write(deal(5000, parts, parts));
    const std::string expected = merged(5000);
    for (const MergeOptions& options : {MergeOptions{}, MergeOptions{.window_rows = 100, .batch_bytes = 1 << 16},
                                        MergeOptions{.window_rows = 4999, .batch_bytes = 1}}) {
      const MergeTotals totals = merge_parts(journal.parts, {0, 5000}, journal.dir / "output.jsonl", options);
      CHECK(totals.rows == 5000);
      CHECK(totals.failed == 500);
      CHECK(totals.bytes == static_cast<int64_t>(expected.size()));
      CHECK(journal.output() == expected);
    }
  }
}

TEST_CASE("records longer than a cache block are copied whole") {
  Journal journal;
  journal.write({{}});
  journal.parts = {{journal.dir / "big.jsonl", journal.dir / "big.ledger"}};
  const std::vector<std::string> records{std::string(3 << 20, 'a'), "b", std::string(100'000, 'c')};
  Commit commit(journal.parts[0], {}, [](const std::exception& e) { FAIL(e.what()); });
  for (const int64_t row : {2, 0, 1}) commit.push({row, records[static_cast<size_t>(row)], false}, 0);
  commit.close();
  merge_parts(journal.parts, {0, 3}, journal.dir / "output.jsonl");
  CHECK(journal.output() == records[0] + "\n" + records[1] + "\n" + records[2] + "\n");
}

TEST_CASE("no rows merge to an empty file") {
  const Journal journal;
  CHECK(merge_parts({}, {0, 0}, journal.dir / "output.jsonl").rows == 0);
  CHECK(journal.output().empty());
}

TEST_CASE("a missing, repeated or foreign row is named and an older output stays") {
  const auto fails = [](std::vector<std::vector<int64_t>> rows, int64_t num_rows, const char* text) {
    Journal journal;
    journal.write(rows);
    journal.dir.write("output.jsonl", "old");
    CHECK_THROWS_WITH_AS(merge_parts(journal.parts, {0, num_rows}, journal.dir / "output.jsonl"),
                         doctest::Contains(text), Error);
    CHECK(journal.output() == "old");
    for (const auto& file : std::filesystem::directory_iterator(journal.dir.path()))
      CHECK(file.path().string().find(".tmp.") == std::string::npos);
  };
  fails({{0, 1}, {3, 4}}, 5, "row 2 has no result in any part");
  fails({{0, 1, 2}, {3}}, 5, "row 4 has no result");
  fails({{0, 1, 2}, {2, 3}}, 4, "row 2 was written twice, in ");
  fails({{0, 1, 1}}, 2, "row 1 was written twice");
  fails({{0, 1, 2}}, 2, "the ledgers have rows 0 to 2, the job has rows 0 to 1");
}

TEST_CASE("rows that finished far from their order, and long ones between short ones, merge to rows in order") {
  std::vector<int64_t> order(3000);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(9));
  const auto text = [](int64_t row) {
    return std::to_string(row) + std::string(row % 50 == 7 ? 40'000 : static_cast<size_t>(row % 900), 'x');
  };
  Journal journal;
  journal.parts.push_back({journal.dir / "0.jsonl", journal.dir / "0.ledger"});
  Commit commit(journal.parts.back(), {}, [](const std::exception& e) { FAIL(e.what()); });
  for (const int64_t row : order) commit.push({row, text(row), false}, 0);
  commit.close();
  std::string expected;
  for (int64_t row = 0; row < 3000; ++row) expected += text(row) + "\n";
  for (const int64_t batch_bytes : {1 << 24, 100'000, 1}) {
    Activity activity;
    merge_parts(journal.parts, {0, 3000}, journal.dir / "output.jsonl",
                {.window_rows = 1024, .batch_bytes = batch_bytes, .activity = &activity});
    CHECK(journal.output() == expected);
    const int64_t batches =
        activity.now().changes;  // a batch of records is progress: three windows, ..., a batch a row
    CHECK(batches >= (batch_bytes == 1 ? 3000 : 3));
    CHECK(batches <= (batch_bytes == 1 << 24 ? 3 : 3000));
  }
}

TEST_CASE("damaged or cut part files are found by the ledger's checksums") {
  Journal journal;
  journal.write({{0, 1, 2, 3}});
  const std::string good = io::read_file(journal.parts[0].part, 1 << 20);
  std::string bytes = good;
  bytes[record(0).size() + 1 + 4] ^= 1;  // in row 1
  journal.dir.write("0.jsonl", bytes);
  CHECK_THROWS_WITH_AS(merge_parts(journal.parts, {0, 4}, journal.dir / "output.jsonl"),
                       doctest::Contains("the record of row 1 (byte "), Error);
  journal.dir.write("0.jsonl", good.substr(0, good.size() - 1));
  CHECK_THROWS_WITH_AS(merge_parts(journal.parts, {0, 4}, journal.dir / "output.jsonl"),
                       doctest::Contains("ends at byte"), Error);
}

TEST_CASE("what is torn off a ledger is a row without a result") {
  Journal journal;
  journal.write({{0, 1, 2, 3}});
  const std::string ledger = io::read_file(journal.parts[0].ledger, 1 << 20);
  journal.dir.write("0.ledger", ledger.substr(0, ledger.size() - 5));
  CHECK_THROWS_WITH_AS(merge_parts(journal.parts, {0, 4}, journal.dir / "output.jsonl"),
                       doctest::Contains("row 3 has no result in any part"), Error);
}

}  // namespace
}  // namespace tokenmill::jobs
