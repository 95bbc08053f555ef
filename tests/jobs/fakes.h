#pragma once
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/json.h"
#include "jobs/generator.h"
#include "jobs/journal/ledger.h"

namespace tokenmill::test {

/// A row that takes `cost` steps.
class FakeItem final : public jobs::WorkItem {
 public:
  FakeItem(int64_t row, std::string record, bool failed, int64_t cost)
      : WorkItem(row), record(std::move(record)), failed(failed), cost(cost) {}
  std::string record;  // the result, already known
  bool failed;
  int64_t cost;
  bool begun = false;
};

/// Answers a record with its row, file, line, length and digest; a record with "bad" in it, or an oversized one, fails;
/// one with "long" in it takes kLongSteps steps.
class FakeCodec final : public jobs::RowCodec {
 public:
  static constexpr int64_t kLongSteps = 400;
  std::unique_ptr<jobs::WorkItem> encode(const jobs::RecordSource& source, std::string_view record) const override {
    if (on_encode) on_encode(source.row);
    const uint64_t digest = jobs::digest(record);
    const bool failed = !all_good && (source.oversized_bytes > 0 || record.find("bad") != record.npos);
    std::string result = "{\"row\":" + std::to_string(source.row) + ",\"file\":";
    io::append_json_string(result, std::string(source.file.substr(source.file.find_last_of('/') + 1)));
    result += ",\"line\":" + std::to_string(source.line) + ",\"bytes\":" + std::to_string(record.size()) +
              ",\"oversized\":" + std::to_string(source.oversized_bytes) + ",\"digest\":" + std::to_string(digest) +
              ",\"failed\":" + (failed ? "true}" : "false}");
    const bool is_long = record.find("long") != record.npos;
    const int64_t cost = failed ? 0 : is_long ? kLongSteps : 1 + static_cast<int64_t>(digest % 7);
    return std::make_unique<FakeItem>(source.row, std::move(result), failed, cost);
  }
  void resume(jobs::WorkItem& item, std::string_view partial) const override {
    static_cast<FakeItem&>(item).cost = std::stoll(std::string(partial));
  }
  std::unique_ptr<jobs::WorkItem> refuse(const jobs::RecordSource& source, std::string_view,
                                         const std::string& reason) const override {
    std::string result = "{\"row\":" + std::to_string(source.row) + ",\"refused\":";
    io::append_json_string(result, reason);
    return std::make_unique<FakeItem>(source.row, result + '}', true, 0);
  }
  std::function<void(int64_t)> on_encode;  ///< runs on the feed's thread
  bool all_good = false;                   ///< no row fails
};

/// Runs up to max_running rows at a time; a row leaves after its cost in steps, so rows finish out of order.
class FakeGenerator final : public jobs::Generator {
 public:
  explicit FakeGenerator(int64_t max_running = 8, double step_s = 0) : max_running_(max_running), step_s_(step_s) {}
  void submit(std::unique_ptr<jobs::WorkItem> item) override {
    running_.emplace_back(static_cast<FakeItem*>(item.release()));
    max_seen = std::max(max_seen, static_cast<int64_t>(running_.size()));
  }
  bool step() override {
    if (on_step) on_step(stats_.steps, !running_.empty());
    if (running_.empty()) return false;
    if (step_s_ > 0) std::this_thread::sleep_for(std::chrono::duration<double>(step_s_));
    ++stats_.steps;
    stats_.sum_running += static_cast<int64_t>(running_.size());
    for (auto& item : running_) {
      if (!std::exchange(item->begun, true) && item->cost > 0) {
        begins(item->row());
        if (on_row) on_row(item->row());
      }
      ++row_steps;
      if (--item->cost <= 0) finish(*item);
    }
    std::erase_if(running_, [](const auto& item) { return item->cost <= 0; });
    return true;
  }
  void close_admission() override {
    std::erase_if(running_, [](const auto& item) { return !item->begun; });
  }
  std::function<void(int64_t)> on_row;  ///< after it has begun
  /// The steps that are left.
  std::vector<jobs::PartialRow> take_partial() override {
    std::vector<jobs::PartialRow> rows;
    for (const auto& item : running_)
      if (item->begun) rows.push_back({item->row(), std::to_string(item->cost)});
    running_.clear();
    return rows;
  }
  std::vector<jobs::FinishedRow> take_finished() override { return std::exchange(finished_, {}); }
  bool idle() const override { return running_.empty() && finished_.empty(); }
  int64_t wants() const override { return max_running_ - static_cast<int64_t>(running_.size()); }
  jobs::GeneratorEstimate estimate() const override { return {}; }
  jobs::GeneratorStats stats() const override {
    jobs::GeneratorStats stats = stats_;
    stats.running_now = static_cast<int64_t>(running_.size());
    return stats;
  }
  const Distributions& distributions() const override { return distributions_; }
  void finish() override {
    if (on_finish) on_finish();
  }
  std::function<void(int64_t, bool)> on_step;  ///< before each step: steps done, and whether there is work for this one
  std::function<void(int64_t)> on_finished_row;
  std::function<void()> on_finish;
  int64_t max_seen = 0;                  ///< most rows held at a time
  int64_t row_steps = 0;                 ///< steps summed over the rows that were in them

 private:
  void finish(FakeItem& item) {
    stats_.prompt_tokens += 3;
    stats_.generation_tokens += 2;
    distributions_.generation_tokens.add(2);
    if (on_finished_row) on_finished_row(item.row());
    finished_.push_back({item.row(), std::move(item.record), item.failed});
  }
  int64_t max_running_;
  double step_s_;
  std::vector<std::unique_ptr<FakeItem>> running_;
  std::vector<jobs::FinishedRow> finished_;
  jobs::GeneratorStats stats_;
  Distributions distributions_;
};

}  // namespace tokenmill::test
