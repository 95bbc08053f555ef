#include "app/generator.h"

#include <algorithm>

#include "app/rows/saved_row.h"
#include "kernels/core/check.h"

namespace tokenmill::app {
namespace {

/// A sample that waits: its sequence, the state of its output, and where that goes (measured: 16,384 of a row take 33
/// MB).
constexpr int64_t kSampleBytes = 2048;

/// What the engine keeps of a request that waits: its prompt, its lists unless they are the job's, and its samples.
int64_t held_bytes(const Request& request) {
  const SamplingParams& sampling = request.sampling;
  size_t bytes = request.prompt_token_ids.size() * sizeof(int32_t);
  if (!sampling.allowed_token_ids.is_shared()) bytes += sampling.allowed_token_ids.size() * sizeof(int32_t);
  if (!sampling.logit_bias.is_shared()) bytes += sampling.logit_bias.size() * sizeof(TokenBias);
  return static_cast<int64_t>(bytes) + sampling.n * kSampleBytes;
}

}  // namespace

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
  if (options_.dedup && follow(owned)) return;
  Request request = std::move(owned->request);
  request.pulled_s = owned->pulled_s;
  const int64_t id = request.request_id;
  const int64_t bytes = held_bytes(request);
  const auto num_prompt_tokens = static_cast<int64_t>(request.prompt_token_ids.size());
  const bool is_new = items_.emplace(id, Computed{std::move(owned), {}, bytes, num_prompt_tokens}).second;
  TM_ASSERT(is_new, "row {} was submitted twice", id);
  held_bytes_ += bytes;
  engine_.submit(std::move(request));
}

/// Lets the row wait for an equal one's answer. False when it is the first of its kind, or has tokens of its own.
bool EngineGenerator::follow(std::unique_ptr<rows::RowItem>& item) {
  const std::optional<int64_t> leader = duplicates_.find_or_add(item->request);
  if (!leader || !item->request.progress.empty()) return false;
  item->request = {};
  items_.at(*leader).followers.push_back(std::move(item));
  ++num_followers_;
  ++num_deduplicated_;
  return true;
}

std::vector<jobs::FinishedRow> EngineGenerator::take_finished() {
  std::vector<jobs::FinishedRow> out = std::move(finished_);
  finished_.clear();
  for (RequestOutput& output : engine_.take_finished()) {
    const auto found = items_.find(output.request_id);
    TM_ASSERT(found != items_.end(), "the engine finished row {}, which it was not given", output.request_id);
    const Computed& computed = found->second;
    finish(*computed.item, output, out);
    for (const auto& follower : computed.followers) {
      output.timing = {.pulled_s = follower->pulled_s, .finished_s = output.timing.finished_s};  // it was not computed
      finish(*follower, output, out);
    }
    num_followers_ -= static_cast<int64_t>(computed.followers.size());
    held_bytes_ -= computed.held_bytes;
    duplicates_.remove(output.request_id);
    items_.erase(found);
  }
  return out;
}

// Rows that wait for another one's answer have come to nothing of their own.
std::vector<jobs::PartialRow> EngineGenerator::take_partial() {
  const std::vector<std::pair<int64_t, RequestProgress>> unfinished = engine_.take_unfinished();
  std::vector<jobs::FinishedRow> finished = take_finished();
  finished_ = std::move(finished);
  std::vector<jobs::PartialRow> rows;
  for (const auto& [row, progress] : unfinished)
    rows.push_back({row, rows::format_saved(row, items_.at(row).num_prompt_tokens, progress)});
  items_.clear();
  return rows;
}

void EngineGenerator::finish(const rows::RowItem& item, const RequestOutput& output,
                             std::vector<jobs::FinishedRow>& out) {
  out.push_back(codec_.format(item, output));
  if (!output.error)
    out.back().attachment.assign(reinterpret_cast<const char*>(output.hidden_state.data()),
                                 output.hidden_state.size() * sizeof(float));
  if (!output.error && !output.outputs.empty()) ++rows_by_reason_[static_cast<size_t>(output.outputs[0].finish_reason)];
  if (output.error && output.error->code == "internal") ++rows_broken_;
  if (on_finished_) on_finished_(item, output);
}

int64_t EngineGenerator::wants() const {
  // At least a full batch and as many waiting: a row that ends is replaced in the next step.
  const int64_t least = 2 * options_.max_num_seqs;
  const int64_t window = held_bytes_ < options_.window_bytes ? std::max(options_.window_rows, least) : least;
  return std::max<int64_t>(0, window - num_followers_ - static_cast<int64_t>(items_.size()));
}

jobs::GeneratorEstimate EngineGenerator::estimate() const {
  const EngineStats& stats = engine_.stats();
  if (stats.num_finished == 0 || stats.num_steps == 0) return {};
  const double steps_per_row = static_cast<double>(stats.sum_running) / static_cast<double>(stats.num_finished);
  return {.row_s = steps_per_row * stats.step_seconds / static_cast<double>(stats.num_steps)};
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
          .step_seconds = engine.step_seconds,
          .plan_seconds = engine.plan_seconds,
          .rows_deduplicated = num_deduplicated_,
          .rows_stopped = rows_by_reason_[static_cast<size_t>(FinishReason::kStop)],
          .rows_at_length = rows_by_reason_[static_cast<size_t>(FinishReason::kLength)],
          .rows_repetitive = rows_by_reason_[static_cast<size_t>(FinishReason::kRepetition)],
          .rows_broken = rows_broken_,
          .preemptions = engine.num_preemptions,
          .recomputed_tokens = engine.num_recomputed_tokens,
          .prefix_cache_queries = engine.prefix_cache_queries,
          .prefix_cache_hits = engine.prefix_cache_hits,
          .sum_kv_waste = engine.sum_kv_waste,
          .sum_kv_shared_blocks = engine.sum_kv_shared_blocks,
          .device_s = engine.times.device_s,
          .host_stall_s = engine.times.host_stall_s,
          .starved_s = engine.times.starved_s,
          .text_s = engine.times.text_s,
          .schedule_s = engine.times.schedule_s};
}

}  // namespace tokenmill::app
