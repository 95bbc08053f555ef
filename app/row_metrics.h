#pragma once
#include <memory>
#include <string>

#include "app/rows/row.h"
#include "io/file.h"
#include "parallel/mpi.h"

namespace tokenmill::app {

/// Times of each row for row_metrics.jsonl: what a result must not contain because it depends on time and place. Each
/// leader writes a file of its own while it runs; rank 0 puts them together, in rank order and order of completion.
class RowMetrics {
 public:
  /// directory is the job's output directory, whose journal exists.
  RowMetrics(const std::string& directory, int rank);
  /// One line: {"row", "rank", "prompt_tokens", "completion_tokens", "queue_s", "ttft_s", "tpot_s", "e2e_s",
  /// "cached_tokens", "preemptions"}; null where a row did not get that far.
  void add(const rows::RowItem& item, const RequestOutput& output);
  /// Collective over world: DIR/row_metrics.jsonl holds every rank's lines when it returns.
  void finish(const parallel::Comm& world);

 private:
  static std::string part_path(const std::string& directory, int rank);
  std::string directory_;
  int rank_;
  io::FileWriter writer_;
};

}  // namespace tokenmill::app
