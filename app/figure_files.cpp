#include "app/figure_files.h"

#include "app/model_choice.h"
#include "app/prometheus.h"
#include "jobs/output_dir.h"

namespace tokenmill::app {

FigureFiles::FigureFiles(const RunOptions& options, int64_t max_model_len, const Ranks& ranks,
                         const parallel::Comm& world)
    : model_(model_name(options)), max_model_len_(max_model_len), has_metrics_(!options.metrics_file.empty()) {
  parallel::run_on_root(world, [&] {
    if (has_metrics_ || !options.iteration_log.empty()) jobs::OutputDir(options.output).make();
    if (has_metrics_) metrics_.emplace(options.metrics_file, text({}));
  });
  parallel::agree_on(world, [&] {
    if (!options.iteration_log.empty() && ranks.leads())
      iterations_.emplace(options.iteration_log, ranks.groups.place.dp_rank, ranks.groups.grid.dp);
  });
}

jobs::MetricsCallback FigureFiles::on_metrics() {
  if (!has_metrics_) return nullptr;
  return [this](const jobs::JobMetrics& metrics) { metrics_->replace(text(metrics)); };
}

void FigureFiles::finish(const jobs::JobMetrics& last, const parallel::Comm& world) {
  if (metrics_) metrics_->replace(text(last));
  parallel::agree_on(world, [&] {
    if (iterations_) iterations_->close();
  });
}

std::string FigureFiles::text(const jobs::JobMetrics& metrics) const {
  return prometheus_text(metrics, model_, max_model_len_);
}

}  // namespace tokenmill::app
