#include "app/generator.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill::app {

void EngineGenerator::submit(std::unique_ptr<jobs::WorkItem> item) {
  auto* row = dynamic_cast<rows::RowItem*>(item.get());
  TM_ASSERT(row != nullptr, "row {} was not encoded by rows::Codec", item->row());
  (void)item.release();
  std::unique_ptr<rows::RowItem> owned(row);
  if (owned->error) {
    finished_.push_back(codec_.format_error(*owned, *owned->error));
    return;
  }
  if (!owned->skipped.empty()) {
    finished_.push_back(codec_.format_skipped(*owned));
    return;
  }
  Request request = std::move(owned->request);
  request.pulled_s = owned->pulled_s;
  const int64_t id = request.request_id;
  const bool is_new = items_.emplace(id, std::move(owned)).second;
  TM_ASSERT(is_new, "row {} was submitted twice", id);
  engine_.submit(std::move(request));
}

std::vector<jobs::FinishedRow> EngineGenerator::take_finished() {
  std::vector<jobs::FinishedRow> out = std::move(finished_);
  finished_.clear();
  for (RequestOutput& output : engine_.take_finished()) {
    const auto found = items_.find(output.request_id);
    TM_ASSERT(found != items_.end(), "the engine finished row {}, which it was not given", output.request_id);
    out.push_back(codec_.format(*found->second, output));
    if (on_finished_) on_finished_(*found->second, output);
    items_.erase(found);
  }
  return out;
}

int64_t EngineGenerator::wants() const {
  // A full batch and as many waiting: a row that ends is replaced in the next step, and chunked prefill finds work.
  return std::max<int64_t>(0, 2 * max_num_seqs_ - engine_.num_unfinished());
}

jobs::GeneratorEstimate EngineGenerator::estimate() const {
  const EngineStats& stats = engine_.stats();
  if (stats.num_finished == 0) return {};
  return {.drain_s = stats.step_seconds / static_cast<double>(stats.num_finished) *
                     static_cast<double>(engine_.num_unfinished())};
}

jobs::GeneratorStats EngineGenerator::stats() const {
  const EngineStats& engine = engine_.stats();
  const double blocks = std::max<double>(1, static_cast<double>(engine.kv_blocks_total));
  return {.prompt_tokens = engine.num_prompt_tokens,
          .generation_tokens = engine.num_generation_tokens,
          .steps = engine.num_steps,
          .sum_running = engine.sum_running,
          .running_now = engine.num_running_now,
          .waiting_now = engine.num_waiting_now,
          .kv_usage_now = static_cast<double>(engine.kv_blocks_used_now) / blocks,
          .kv_usage_peak = static_cast<double>(engine.kv_blocks_used_peak) / blocks,
          .step_seconds = engine.step_seconds};
}

}  // namespace tokenmill::app
