#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "jobs/generator.h"

namespace tokenmill::jobs {

/// Where a replica is: sent to rank 0 a few times a second.
struct ReplicaStatus {
  int64_t rows_finished = 0;
  int64_t rows_failed = 0;  ///< of the finished ones
  double busy_s = 0;        ///< the step loop was computing, not waiting for rows
  int64_t rows_saved = 0;   ///< unfinished at a stop, with tokens that the next run goes on from
  double longest_step_s = 0;  ///< of the last ones
  double row_s = 0;           ///< GeneratorEstimate
  double tail_s = 0;        ///< since nothing was left to pull for it: it worked on what it held
  GeneratorStats stats;
};

enum class JobPhase { kIndexing, kRunning, kMerging };

/// What earlier runs of the job did.
struct RowsBefore {
  int64_t done = 0;
  int64_t failed = 0;  ///< of these
};

/// Where the job is; rates are over the last half minute.
struct JobProgress {
  JobPhase phase = JobPhase::kRunning;
  double elapsed_s = 0;  ///< since the phase began
  int64_t rows_total = 0, rows_done = 0, rows_failed = 0;
  int64_t prompt_tokens = 0, generation_tokens = 0;
  double rows_per_s = 0, prompt_tokens_per_s = 0, generation_tokens_per_s = 0;
  int64_t running = 0, waiting = 0;  ///< sequences in all replicas
  double kv_usage = 0;               ///< mean over replicas, 0..1
  double prefix_hit_rate = 0;        ///< of prompt tokens, since the phase began
  int64_t preemptions = 0;           ///< since the phase began
  double eta_s = -1;                 ///< to the last row at the present rate; -1: not known
};
/// Everything that is counted, over all replicas: for monitoring while a job runs, and at its end.
struct JobMetrics {
  int64_t num_replicas = 0;
  int64_t rows_total = 0, rows_done = 0, rows_failed = 0;
  double elapsed_s = 0;  ///< since the rows of this run began
  GeneratorStats stats;  ///< of this run
  Distributions distributions;
};
/// distributions: serialized, by replica; empty where a replica has sent none yet.
JobMetrics job_metrics(const std::vector<ReplicaStatus>& replicas, const std::vector<std::string>& distributions,
                       int64_t rows_total, const RowsBefore& before, double elapsed_s);
/// Called on rank 0 as ProgressCallback is, every JobOptions::metrics_s while running.
using MetricsCallback = std::function<void(const JobMetrics&)>;

/// Called on rank 0, one call at a time, from a thread of its own: it must be quick. Once when a phase begins, every
/// JobOptions::progress_s while running, and when the last row is done.
using ProgressCallback = std::function<void(const JobProgress&)>;

/// Adds replicas' statuses up and measures rates: pure, the clock is the caller's.
class ProgressTracker {
 public:
  explicit ProgressTracker(int64_t rows_total, const RowsBefore& before = {})
      : rows_total_(rows_total), before_(before), samples_{Sample{.rows = before.done}} {}
  /// now_s: seconds since the phase began, monotone.
  JobProgress update(const std::vector<ReplicaStatus>& replicas, double now_s);

 private:
  struct Sample {
    double time_s = 0;
    int64_t rows = 0, prompt_tokens = 0, generation_tokens = 0;
  };
  int64_t rows_total_;
  RowsBefore before_;
  std::deque<Sample> samples_;
};

}  // namespace tokenmill::jobs
