#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "app/duplicates.h"
#include "app/rows/codec.h"
#include "engine/engine.h"
#include "jobs/generator.h"
#include "kernels/core/clock.h"

namespace tokenmill::app {

struct EngineGeneratorOptions {
  int64_t max_num_seqs = 256;  ///< the engine's
  /// Rows held at once, so that the engine finds shared beginnings among them; at least two batches.
  int64_t window_rows = 4096;
  /// Of what waiting rows keep: prompts' ids, biases of their own, samples. What is reached first bounds the window.
  int64_t window_bytes = int64_t{64} << 20;
  bool dedup = false;  ///< rows that must have equal answers are computed once
};

/// The engine and the row formats as jobs knows them: items become requests, outputs become result lines. Rows that
/// carry an error or are skipped never reach the engine. One thread calls it, on a replica's leader.
class EngineGenerator final : public jobs::Generator {
 public:
  /// Both outlive the generator.
  EngineGenerator(Engine& engine, const rows::Codec& codec, const EngineGeneratorOptions& options)
      : engine_(engine), codec_(codec), options_(options) {
    engine_.on_begin([this](int64_t row) { begins(row); });
  }
  ~EngineGenerator() override { engine_.on_begin({}); }

  void submit(std::unique_ptr<jobs::WorkItem> item) override;
  bool step() override { return engine_.step(); }
  void finish() override {
    if (at_end_) at_end_();
  }
  std::vector<jobs::FinishedRow> take_finished() override;
  void close_admission() override { engine_.close_admission(); }
  std::vector<jobs::PartialRow> take_partial() override;
  bool idle() const override { return engine_.idle() && finished_.empty(); }
  int64_t wants() const override;
  jobs::GeneratorEstimate estimate() const override;
  jobs::GeneratorStats stats() const override;
  const Distributions& distributions() const override { return engine_.distributions(); }

  /// Called with every finished row that reached the engine: its times, for row_metrics.jsonl. Of a row that
  /// was not computed because an equal one was: when it was pulled and when that one's answer came.
  void on_finished(std::function<void(const rows::RowItem&, const RequestOutput&)> callback) {
    on_finished_ = std::move(callback);
  }
  /// Called when no row will come any more and all are finished: lets a replica's followers go.
  void at_end(std::function<void()> callback) { at_end_ = std::move(callback); }

 private:
  /// A row in the engine and those that wait for its answer.
  struct Computed {
    std::unique_ptr<rows::RowItem> item;
    std::vector<std::unique_ptr<rows::RowItem>> followers;
    int64_t held_bytes = 0;
    int64_t num_prompt_tokens = 0;
  };
  bool follow(std::unique_ptr<rows::RowItem>& item);
  void finish(const rows::RowItem& item, const RequestOutput& output, std::vector<jobs::FinishedRow>& out);

  Engine& engine_;
  const rows::Codec& codec_;
  EngineGeneratorOptions options_;
  std::unordered_map<int64_t, Computed> items_;  // in the engine, by request id (= row)
  int64_t num_followers_ = 0;                    // in items_
  int64_t held_bytes_ = 0;                       // in items_
  Duplicates duplicates_;
  int64_t num_deduplicated_ = 0;
  std::vector<jobs::FinishedRow> finished_;  // errors and skipped rows: they need no engine
  std::array<int64_t, 3> rows_by_reason_{};  // answered, by FinishReason
  int64_t rows_broken_ = 0;
  std::function<void(const rows::RowItem&, const RequestOutput&)> on_finished_;
  std::function<void()> at_end_;
};

}  // namespace tokenmill::app
