#pragma once
#include <functional>
#include <optional>
#include <string>

#include "engine/step_meter.h"
#include "io/file.h"

namespace tokenmill::app {

/// One step's line: {"step", "time_s" (of its launch, from origin_s on), "step_s", "tokens", "prompt_tokens",
/// "sequences", "logits_rows", "kv_blocks", "host_wait_s", "gemm_s", "attention_s", "other_s", "communication_s"}.
/// host_wait_s lies before the step; the four behind it are parts of step_s on the leader: products, attention, what is
/// left (with pipeline stages also the time in which another step had its turn), and transfers between ranks with the
/// waits for them that nothing else hides (0 in a replica of one rank).
std::string iteration_line(const StepRecord& step, double origin_s);

/// --iteration-log as the replica writes it: with several replicas a file each, "PATH.REPLICA".
std::string iteration_log_path(const std::string& path, int replica, int num_replicas);

/// A file of such lines, one replica's. One thread.
class IterationLog {
 public:
  /// path: --iteration-log; the file is iteration_log_path()'s. Throws Error(kConfig) when it cannot be written.
  IterationLog(const std::string& path, int replica, int num_replicas);
  void add(const StepRecord& step);
  void close() { writer_.close(); }

 private:
  io::FileWriter writer_;
  double origin_s_;
  double flushed_s_ = 0;
};

/// What EngineOptions::on_step takes: adds to the log, or nothing when there is none. The log outlives it.
std::function<void(const StepRecord&)> step_listener(std::optional<IterationLog>& log);

}  // namespace tokenmill::app
