#pragma once
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "app/rows/codec.h"
#include "engine/engine.h"
#include "jobs/generator.h"
#include "kernels/core/clock.h"

namespace tokenmill::app {

/// The engine and the row formats as jobs knows them: items become requests, outputs become result lines. Rows that
/// carry an error or are skipped never reach the engine. One thread calls it, on a replica's leader.
class EngineGenerator final : public jobs::Generator {
 public:
  /// All outlive the generator. max_num_seqs is the engine's.
  EngineGenerator(Engine& engine, const rows::Codec& codec, int64_t max_num_seqs)
      : engine_(engine), codec_(codec), max_num_seqs_(max_num_seqs) {}

  void submit(std::unique_ptr<jobs::WorkItem> item) override;
  bool step() override { return engine_.step(); }
  std::vector<jobs::FinishedRow> take_finished() override;
  bool idle() const override { return engine_.idle() && finished_.empty(); }
  int64_t wants() const override;
  jobs::GeneratorEstimate estimate() const override;
  jobs::GeneratorStats stats() const override;

  /// Called with every finished row that reached the engine: its times, for row_metrics.jsonl.
  void on_finished(std::function<void(const rows::RowItem&, const RequestOutput&)> callback) {
    on_finished_ = std::move(callback);
  }

 private:
  Engine& engine_;
  const rows::Codec& codec_;
  int64_t max_num_seqs_;
  std::unordered_map<int64_t, std::unique_ptr<rows::RowItem>> items_;  // in the engine, by request id (= row)
  std::vector<jobs::FinishedRow> finished_;                            // errors and skipped rows: they need no engine
  std::function<void(const rows::RowItem&, const RequestOutput&)> on_finished_;
};

}  // namespace tokenmill::app
