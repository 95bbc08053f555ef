#include "jobs/progress.h"

namespace tokenmill::jobs {
namespace {

constexpr double kRateWindow_s = 30;

}  // namespace

JobProgress ProgressTracker::update(const std::vector<ReplicaStatus>& replicas, double now_s) {
  JobProgress progress{.phase = JobPhase::kRunning, .elapsed_s = now_s, .rows_total = rows_total_};
  for (const ReplicaStatus& replica : replicas) {
    progress.rows_done += replica.rows_finished;
    progress.rows_failed += replica.rows_failed;
    progress.prompt_tokens += replica.stats.prompt_tokens;
    progress.generation_tokens += replica.stats.generation_tokens;
    progress.running += replica.stats.running_now;
    progress.waiting += replica.stats.waiting_now;
    progress.kv_usage += replica.stats.kv_usage_now / static_cast<double>(replicas.size());
  }
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
