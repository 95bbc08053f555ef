#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/output_processor.h"
#include "engine/request.h"
#include "engine/runner.h"
#include "engine/scheduler_options.h"
#include "engine/step_meter.h"
#include "kernels/core/clock.h"
#include "kernels/core/distributions.h"

namespace tokenmill {

namespace text {
class Tokenizer;
}

struct EngineOptions {
  SchedulerOptions scheduler;
  std::vector<int32_t> eos_token_ids;  ///< end a sequence unless ignore_eos
  bool detokenize = true;              ///< false: outputs carry token ids only and stop strings are refused
  /// Host memory of the logprobs of one row, prompt and samples; a row that reports more becomes an error. Each sample
  /// has an equal part of what the prompt leaves, so that the error does not depend on which is computed first.
  int64_t max_row_logprob_bytes = int64_t{256} << 20;
  /// Of all unfinished rows: beyond it none is admitted as long as others run. These go on.
  int64_t max_logprob_bytes = int64_t{1} << 30;
  const Clock* clock = nullptr;        ///< outlives the engine; null: the steady clock
  /// Gets every collected step, in order, on the engine's thread. May be empty.
  std::function<void(const StepRecord&)> on_step = {};
};

/// Counters of one replica since its start; all monotone except the *_now fields.
struct EngineStats {
  int64_t num_steps = 0;
  int64_t num_prompt_tokens = 0;           ///< of all requests that have run, each counted once
  int64_t num_computed_prompt_tokens = 0;  ///< not found in the prefix cache; again after a preemption
  int64_t num_generation_tokens = 0;
  int64_t num_finished = 0, num_failed = 0;
  int64_t num_preemptions = 0, num_recomputed_tokens = 0;   ///< recomputed: positions computed more than once
  int64_t prefix_cache_queries = 0, prefix_cache_hits = 0;  ///< prompt tokens looked up, and found
  int64_t num_running_now = 0, num_waiting_now = 0;
  int64_t kv_blocks_used_now = 0, kv_blocks_used_peak = 0, kv_blocks_total = 0;
  // Summed over steps: the mean is the sum over num_steps.
  int64_t sum_running = 0;
  double sum_kv_waste = 0;           ///< allocated minus used slots over allocated
  int64_t sum_kv_shared_blocks = 0;  ///< blocks saved by sharing
  int64_t logprob_bytes_now = 0, logprob_bytes_peak = 0;  ///< host memory of unfinished rows' logprobs
  double step_seconds = 0;           ///< in step() while it had something to do
  StepTimes times;
  double plan_seconds = 0;  ///< on the order of waiting sequences; in submit() and in steps
};

/// The narrow face of one replica's engine, on the leader. One thread calls it.
class Engine {
 public:
  /// runner and tokenizer outlive the engine. tokenizer may be null when options.detokenize is false.
  Engine(Runner& runner, const text::Tokenizer* tokenizer, const EngineOptions& options);
  /// The same with decoders of the caller's; empty when options.detokenize is false.
  Engine(Runner& runner, TokenDecoderFactory decoders, const EngineOptions& options);
  ~Engine();

  /// Queues a request. One that can never run (too long, too many blocks) comes back from take_finished with an error.
  void submit(Request request);
  /// Schedules and launches what it can, collects the oldest step when the pipeline is full or nothing else can be
  /// launched, and updates. Callable without work. Returns false when there was nothing to do.
  bool step();
  /// What to call in step() before a request's first step; its id. May be empty.
  void on_begin(std::function<void(int64_t request_id)> callback);
  /// From now on no request begins; those that run go on.
  void close_admission();
  /// Gives up what is unfinished, after collecting what is in flight (which may finish requests). Returns what each of
  /// them had come to, by request id, those left out that have no token yet. The last call besides take_finished().
  std::vector<std::pair<int64_t, RequestProgress>> take_unfinished();
  /// Finished since the last call, in order of completion.
  std::vector<RequestOutput> take_finished();
  /// True when no request is waiting, running or in flight (finished ones may still wait to be taken).
  bool idle() const;
  /// Requests not finished yet: waiting and running.
  int64_t num_unfinished() const;
  const EngineStats& stats() const;
  /// What varied from row to row and from step to step so far; rows with errors are left out.
  const Distributions& distributions() const;
  /// Begins them anew: what a warm-up did does not count.
  void forget_distributions();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tokenmill
