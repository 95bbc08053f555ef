#include "jobs/progress.h"

#include <algorithm>

namespace tokenmill::jobs {
namespace {

constexpr double kRateWindow_s = 30;

}  // namespace

void GeneratorStats::add(const GeneratorStats& other) {
  prompt_tokens += other.prompt_tokens;
  generation_tokens += other.generation_tokens;
  steps += other.steps;
  sum_running += other.sum_running;
  running_now += other.running_now;
  waiting_now += other.waiting_now;
  kv_usage_now += other.kv_usage_now;
  kv_usage_peak = std::max(kv_usage_peak, other.kv_usage_peak);
  step_seconds += other.step_seconds;
  plan_seconds += other.plan_seconds;
  rows_deduplicated += other.rows_deduplicated;
  rows_stopped += other.rows_stopped;
  rows_at_length += other.rows_at_length;
  rows_repetitive += other.rows_repetitive;
  rows_broken += other.rows_broken;
  preemptions += other.preemptions;
  recomputed_tokens += other.recomputed_tokens;
  prefix_cache_queries += other.prefix_cache_queries;
  prefix_cache_hits += other.prefix_cache_hits;
  sum_kv_waste += other.sum_kv_waste;
  sum_kv_shared_blocks += other.sum_kv_shared_blocks;
  device_s += other.device_s;
  host_stall_s += other.host_stall_s;
  starved_s += other.starved_s;
  text_s += other.text_s;
  schedule_s += other.schedule_s;
}

JobMetrics job_metrics(const std::vector<ReplicaStatus>& replicas, const std::vector<std::string>& distributions,
                       int64_t rows_total, const RowsBefore& before, double elapsed_s) {
  JobMetrics out{.num_replicas = static_cast<int64_t>(replicas.size()),
                 .rows_total = rows_total,
                 .rows_done = before.done,
                 .rows_failed = before.failed,
                 .elapsed_s = elapsed_s};
  for (const ReplicaStatus& replica : replicas) {
    out.rows_done += replica.rows_finished;
    out.rows_failed += replica.rows_failed;
    out.stats.add(replica.stats);
  }
  for (const std::string& bytes : distributions)
    if (!bytes.empty()) out.distributions.merge(Distributions::deserialize(bytes));
  return out;
}

JobProgress ProgressTracker::update(const std::vector<ReplicaStatus>& replicas, double now_s) {
  JobProgress progress{.phase = JobPhase::kRunning,
                       .elapsed_s = now_s,
                       .rows_total = rows_total_,
                       .rows_done = before_.done,
                       .rows_failed = before_.failed};
  GeneratorStats sum;
  for (const ReplicaStatus& replica : replicas) {
    progress.rows_done += replica.rows_finished;
    progress.rows_failed += replica.rows_failed;
    sum.add(replica.stats);
  }
  progress.prompt_tokens = sum.prompt_tokens;
  progress.generation_tokens = sum.generation_tokens;
  progress.running = sum.running_now;
  progress.waiting = sum.waiting_now;
  progress.kv_usage = replicas.empty() ? 0 : sum.kv_usage_now / static_cast<double>(replicas.size());
  progress.preemptions = sum.preemptions;
  progress.prefix_hit_rate = sum.prefix_hit_rate();
  samples_.push_back({now_s, progress.rows_done, progress.prompt_tokens, progress.generation_tokens});
  while (samples_.size() > 2 && samples_[1].time_s <= now_s - kRateWindow_s) samples_.pop_front();
  const Sample& oldest = samples_.front();
  const double span_s = now_s - oldest.time_s;
  if (span_s > 0) {
    progress.rows_per_s = static_cast<double>(progress.rows_done - oldest.rows) / span_s;
    progress.prompt_tokens_per_s = static_cast<double>(progress.prompt_tokens - oldest.prompt_tokens) / span_s;
    progress.generation_tokens_per_s =
        static_cast<double>(progress.generation_tokens - oldest.generation_tokens) / span_s;
  }
  const int64_t rows_left = rows_total_ - progress.rows_done;
  if (rows_left == 0)
    progress.eta_s = 0;
  else if (progress.rows_per_s > 0)
    progress.eta_s = static_cast<double>(rows_left) / progress.rows_per_s;
  return progress;
}

}  // namespace tokenmill::jobs
