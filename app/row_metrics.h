#pragma once
#include <memory>
#include <string>

#include "engine/request.h"
#include "io/file.h"
#include "parallel/mpi.h"

namespace tokenmill::app {

/// One row's line: {"row", "rank", "prompt_tokens", "completion_tokens", "queue_s", "prefill_s", "decode_s", "ttft_s",
/// "itl_mean_s", "itl_max_s", "tpot_s", "e2e_s", "cached_tokens", "preemptions"}; times as engine/README.md defines
/// them, null where a row did not get that far.
std::string row_metrics_line(int64_t row, int rank, const RequestOutput& output);

/// Times of each row for row_metrics.jsonl: what a result must not contain because it depends on time and place. Each
/// leader writes a file of its own while it runs; rank 0 puts them together, in rank order and order of completion.
class RowMetrics {
 public:
  /// directory is the job's output directory, whose journal exists.
  RowMetrics(const std::string& directory, int rank);
  void add(int64_t row, const RequestOutput& output);
  /// Collective over world: DIR/row_metrics.jsonl holds every rank's lines when it returns.
  void finish(const parallel::Comm& world);

 private:
  static std::string part_path(const std::string& directory, int rank);
  std::string directory_;
  int rank_;
  io::FileWriter writer_;
};

}  // namespace tokenmill::app
