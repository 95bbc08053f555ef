#pragma once
#include <cstdint>
#include <deque>

#include "engine/runner.h"
#include "engine/scheduler_options.h"

namespace tokenmill {

/// How the plans in flight share a pipeline's work. A stage waits for the one before it as long as that one's plan is
/// longer than its own, so plans should be of equal size. With one stage a plan takes everything. Otherwise:
///
/// Decodes. A sequence is in one plan in flight at most, so those that run are dealt out evenly: of
/// max_steps_in_flight plans in a row each takes its part. What exceeds the part goes to the next plans; parts that
/// drain unevenly are even again a round later.
///
/// Prompts. They come in bursts, as slots become free, and are cut so that what is there lasts for some rounds. A plan
/// is not cut below SchedulerOptions::min_pipeline_tokens.
class MicroBatches {
 public:
  MicroBatches(const RunnerLimits& limits, const SchedulerOptions& options);

  bool is_pipeline() const { return num_stages_ > 1; }
  /// How many of num_decodes the next plan takes at most; num_decodes: ready, and in flight with more to come.
  int64_t decode_share(int64_t num_decodes) const;
  /// How many prompt tokens the next plan takes at most, beside num_decodes of its own; num_tokens: those that could be
  /// planned now.
  int64_t prompt_share(int64_t num_tokens, int64_t num_decodes) const;
  /// A plan with so many prompt tokens has been made.
  void launched(int64_t num_prompt_tokens);
  /// No plan is in flight.
  void drained();

 private:
  int num_stages_;
  int64_t num_batches_;  // in flight at most
  int64_t max_num_tokens_;
  int64_t min_num_tokens_;
  int64_t num_launched_ = 0;
  std::deque<int64_t> recent_;  // prompt tokens of the last plans
  int64_t sum_recent_ = 0;
};

}  // namespace tokenmill
