#pragma once
#include <memory>
#include <string>

#include "engine/request.h"
#include "io/file.h"

namespace tokenmill::app {

/// One row's line: {"row", "rank", "prompt_tokens", "completion_tokens", "queue_s", "prefill_s", "decode_s", "ttft_s",
/// "itl_mean_s", "itl_max_s", "tpot_s", "e2e_s", "cached_tokens", "preemptions"}; times as engine/README.md defines
/// them, null where a row did not get that far.
std::string row_metrics_line(int64_t row, int rank, const RequestOutput& output);

/// Times of each row for row_metrics.jsonl: what a result must not contain because it depends on time and place. Each
/// leader writes a file of its own while it runs, or goes on with that of earlier runs; rank 0 puts them together, by
/// replica and in order of completion. What a killed run had not written is missing, and a row it computed but did not
/// commit has a line for each time.
class RowMetrics {
 public:
  /// directory is the job's output directory, whose journal exists; rank is the leader's in the world.
  RowMetrics(const std::string& directory, int replica, int rank);
  void add(int64_t row, const RequestOutput& output);
  void close() { writer_.close(); }
  /// After all replicas have closed theirs: DIR/row_metrics.jsonl holds the lines of all runs.
  static void merge(const std::string& directory);

 private:
  int rank_;
  io::FileWriter writer_;
};

}  // namespace tokenmill::app
