#pragma once
#include <functional>
#include <optional>
#include <string>

#include "app/iteration_log.h"
#include "app/metrics_file.h"
#include "app/options.h"
#include "app/ranks.h"
#include "jobs/progress.h"
#include "parallel/mpi.h"

namespace tokenmill::app {

/// The files that --metrics-file (rank 0) and --iteration-log (leaders) name, written while the job runs.
class FigureFiles {
 public:
  /// Collective over world. Before the job claims its directory: a path that cannot be written leaves no journal
  /// behind.
  FigureFiles(const RunOptions& options, int64_t max_model_len, const Ranks& ranks, const parallel::Comm& world);

  /// Empty without --metrics-file.
  jobs::MetricsCallback on_metrics();
  /// Empty without --iteration-log.
  std::function<void(const StepRecord&)> on_step() { return step_listener(iterations_); }
  /// Collective over world.
  void finish(const jobs::JobMetrics& last, const parallel::Comm& world);

 private:
  std::string text(const jobs::JobMetrics& metrics) const;
  std::string model_;
  int64_t max_model_len_;
  bool has_metrics_;
  std::optional<MetricsFile> metrics_;
  std::optional<IterationLog> iterations_;
};

}  // namespace tokenmill::app
