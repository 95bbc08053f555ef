// feed, batch_run and commit together, without ranks; also run under TSan.
#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "fakes.h"
#include "io/file.h"
#include "jobs/batch_run.h"
#include "jobs/commit.h"
#include "jobs/feed.h"
#include "jobs/merge.h"
#include "kernels/core/error.h"
#include "support/temp_dir.h"

namespace tokenmill::jobs {
namespace {

/// Hands out [0, rows) in chunks of 7.
struct Chunks {
  int64_t rows, next = 0;
  std::optional<std::vector<RowRun>> operator()() {
    if (next == rows) return std::nullopt;
    const RowRange range{next, std::min(rows, next + 7)};
    next = range.end;
    return std::vector<RowRun>{{range}};
  }
};

struct Fixture {
  explicit Fixture(int64_t rows) : rows(rows) {
    std::string text;
    for (int64_t i = 0; i < rows; ++i) text += "{\"n\":" + std::to_string(i) + (i % 8 == 1 ? ",\"bad\":0}\n" : "}\n");
    index = build_index({dir.write("in.jsonl", text)}, {});
  }
  std::function<void(const std::exception&)> record_error() {
    return [this](const std::exception& e) {
      std::lock_guard lock(mutex);
      errors.emplace_back(e.what());
    };
  }
  PartPaths part() const { return {dir / "p.jsonl", dir / "p.ledger"}; }

  test::TempDir dir;
  int64_t rows;
  Index index;
  test::FakeCodec codec;
  std::mutex mutex;
  std::vector<std::string> errors;
};

TEST_CASE("every row passes through feed, generator and commit, and the generator is kept full") {
  Fixture f(3000);
  test::FakeGenerator generator(16);
  Commit commit(f.part(), {.commit_s = 0.001}, f.record_error());
  Feed feed(f.index, f.codec, {}, {.pull = Chunks{f.rows}, .on_error = f.record_error()});
  int64_t published = 0;
  const ReplicaStatus status = run_batches(generator, feed, commit, {.publish = [&](const ReplicaStatus& s) {
                                             CHECK(s.rows_finished >= published);
                                             published = s.rows_finished;
                                           }});
  commit.close();
  CHECK(f.errors.empty());
  CHECK(commit.stats().rows == 3000);
  CHECK(commit.stats().bytes ==
        static_cast<int64_t>(std::filesystem::file_size(f.part().part) + std::filesystem::file_size(f.part().ledger)));
  CHECK(commit.stats().commits > 0);
  CHECK(commit.stats().cpu_s > 0);
  CHECK(commit.stats().commit_s > 0);
  CHECK(commit.stats().blocked_s > 0);  // at least by close()
  CHECK(status.rows_finished == 3000);
  CHECK(status.rows_failed == 375);
  CHECK(status.stats.generation_tokens == 6000);
  CHECK(published == 3000);
  CHECK(generator.max_seen == 16);
  const MergeTotals totals = merge_parts({f.part()}, {0, 3000}, f.dir / "output.jsonl");
  CHECK(totals.rows == 3000);
  CHECK(totals.failed == 375);
}

TEST_CASE("bounds of one row and one byte only slow the feed down") {
  Fixture f(200);
  test::FakeGenerator generator(3);
  Commit commit(f.part(), {.commit_s = 0.001, .max_queued_rows = 1, .max_queued_bytes = 1}, f.record_error());
  Feed feed(f.index, f.codec, {.reader = {}, .max_queued_rows = 1, .max_queued_bytes = 1},
            {.pull = Chunks{f.rows}, .on_error = f.record_error()});
  CHECK(run_batches(generator, feed, commit).rows_finished == 200);
  commit.close();
  CHECK(merge_parts({f.part()}, {0, 200}, f.dir / "output.jsonl").rows == 200);
}

TEST_CASE("a feed that fails reports once and ends") {
  Fixture f(100);
  f.codec.on_encode = [](int64_t row) {
    if (row == 50) throw std::runtime_error("cannot encode");
  };
  Feed feed(f.index, f.codec, {}, {.pull = Chunks{f.rows}, .on_error = f.record_error()});
  int64_t rows = 0;
  while (!feed.ended()) {
    feed.wait(1);
    while (feed.try_take()) ++rows;
  }
  CHECK(rows == 50);
  CHECK(f.errors == std::vector<std::string>{"cannot encode"});
}

TEST_CASE("a feed can be dropped while it waits for room") {
  Fixture f(1000);
  Feed feed(f.index, f.codec, {.reader = {}, .max_queued_rows = 2},
            {.pull = Chunks{f.rows}, .on_error = f.record_error()});
  feed.wait(1);
  CHECK(feed.try_take());
}

TEST_CASE("a commit that cannot write reports once, and push and close throw its error") {
  Fixture f(1);
  Commit commit({f.dir / "none/p.jsonl", f.dir / "none/p.ledger"}, {}, f.record_error());
  CHECK_THROWS_WITH_AS(
      [&] {
        for (int i = 0; i < 100'000; ++i) commit.push({i, "{}", false}, 0);
      }(),
      doctest::Contains("none/p.jsonl"), Error);
  CHECK_THROWS_WITH_AS(commit.close(), doctest::Contains("none/p.jsonl"), Error);
  CHECK(f.errors.size() == 1);
}

TEST_CASE("a full disk is an error of the row's file, not a lost row") {
  Fixture f(1);
  Commit commit({f.dir / "q.jsonl", "/dev/full"}, {}, f.record_error());
  commit.push({0, "{}", false}, 0);
  CHECK_THROWS_WITH_AS(commit.close(), doctest::Contains("give the same command again"), Error);
}

TEST_CASE("records with a newline are refused: a line is a row") {
  Fixture f(1);
  Commit commit(f.part(), {}, f.record_error());
  commit.push({0, "{\n}", false}, 0);
  CHECK_THROWS_WITH_AS(commit.close(), doctest::Contains("holds a newline"), Error);
}

/// Breaks the contract in the way it is told.
class BrokenGenerator final : public Generator {
 public:
  enum class Way { kLosesRow, kInventsRow, kRepeatsRow };
  explicit BrokenGenerator(Way way) : way_(way) {}
  void submit(std::unique_ptr<WorkItem> item) override {
    if (way_ == Way::kLosesRow) return;
    finished_.push_back({item->row(), "{}", false});
    if (way_ == Way::kRepeatsRow) finished_.push_back({item->row(), "{}", false});
    if (way_ == Way::kInventsRow) finished_.push_back({item->row() + 1000, "{}", false});
  }
  bool step() override { return false; }
  void close_admission() override {}
  std::vector<PartialRow> take_partial() override { return {}; }
  std::vector<FinishedRow> take_finished() override { return std::exchange(finished_, {}); }
  bool idle() const override { return finished_.empty(); }
  int64_t wants() const override { return 1; }
  GeneratorEstimate estimate() const override { return {}; }
  GeneratorStats stats() const override { return {}; }
  const Distributions& distributions() const override { return distributions_; }

 private:
  Way way_;
  std::vector<FinishedRow> finished_;
  Distributions distributions_;
};

TEST_CASE("a generator that loses, repeats or invents a row is an internal error naming it") {
  using Way = BrokenGenerator::Way;
  const std::pair<Way, const char*> broken[] = {{Way::kLosesRow, "have no result"},
                                                {Way::kRepeatsRow, "finished row 0, which it does not hold"},
                                                {Way::kInventsRow, "finished row 1000, which it does not hold"}};
  for (const auto& [way, text] : broken) {
    Fixture f(3);
    BrokenGenerator generator(way);
    Commit commit(f.part(), {}, f.record_error());
    Feed feed(f.index, f.codec, {}, {.pull = Chunks{f.rows}, .on_error = f.record_error()});
    CHECK_THROWS_WITH_AS(run_batches(generator, feed, commit), doctest::Contains(text), Error);
  }
}

/// Asks for rows only while it has some: an idle one must still be given work.
class ShyGenerator final : public Generator {
 public:
  void submit(std::unique_ptr<WorkItem> item) override { row_ = item->row(); }
  bool step() override { return row_ >= 0; }
  void close_admission() override {}
  std::vector<PartialRow> take_partial() override { return {}; }
  std::vector<FinishedRow> take_finished() override {
    if (row_ < 0) return {};
    return {{std::exchange(row_, -1), "{}", false}};
  }
  bool idle() const override { return row_ < 0; }
  int64_t wants() const override { return 0; }
  GeneratorEstimate estimate() const override { return {}; }
  GeneratorStats stats() const override { return {}; }
  const Distributions& distributions() const override { return distributions_; }

 private:
  int64_t row_ = -1;
  Distributions distributions_;
};

TEST_CASE("an idle generator that wants nothing is still given rows") {
  Fixture f(20);
  ShyGenerator generator;
  Commit commit(f.part(), {}, f.record_error());
  Feed feed(f.index, f.codec, {}, {.pull = Chunks{f.rows}, .on_error = f.record_error()});
  CHECK(run_batches(generator, feed, commit).rows_finished == 20);
}

}  // namespace
}  // namespace tokenmill::jobs
