#pragma once
#include <string>

#include "jobs/progress.h"

namespace tokenmill::app {

/// The counters of a job in Prometheus' text format 0.0.4: vLLM's names under the prefix "tokenmill:", with the label
/// model_name, so that its dashboards need another prefix only; and rows, stalls and waste, which only a job has.
/// max_model_len bounds the buckets of token counts.
std::string prometheus_text(const jobs::JobMetrics& metrics, const std::string& model_name, int64_t max_model_len);

}  // namespace tokenmill::app
