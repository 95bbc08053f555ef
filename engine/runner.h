#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/logprobs.h"
#include "engine/step_plan.h"
#include "kernels/kv_pool.h"
#include "kernels/op_times.h"

namespace tokenmill {

enum class SampleStatus : uint8_t {
  kFine = 0,
  kNonFinite = 1,       ///< the row's logits held NaN or infinity
  kNothingAllowed = 2,  ///< the row's bias and masks left no token
};

/// One sampled token, or one scored token of a prompt.
struct SampledToken {
  int32_t token_id = 0;
  float logprob = 0;                          ///< of the raw logits
  SampleStatus status = SampleStatus::kFine;  ///< else the other fields mean nothing
  int32_t rank = 1;                           ///< as TokenLogprob's; only when logprobs were asked for
  PositionLogprobs top = {};                  ///< the tokens asked for besides, as PositionLogprobs behind its first
};

/// What a step produced.
struct StepResult {
  struct Slot {
    int32_t slot = 0;
    std::vector<SampledToken> tokens;       ///< one per wanted logits row, in order
    std::vector<SampledToken> scored = {};  ///< one per scored prompt position of the step, in order
    std::vector<float> listed = {};         ///< logprobs of ScheduledSlot::scored_lists; minus infinity for -1
    /// The prompt's hidden state, [hidden_size], where ScheduledSlot::hidden_ends; else empty.
    std::vector<float> hidden = {};
  };
  uint64_t step_id = 0;
  std::vector<Slot> slots;  ///< scheduled slots with brings_results(), in the plan's order
  OpTimes op_times;         ///< of this rank's device; on a leader host_s includes waiting for the last stage's result
};

using Ticket = uint64_t;

/// What the runner offers the scheduler; fixed for the job.
struct RunnerLimits {
  std::vector<KvSpec> kv_groups;
  std::vector<int64_t> num_blocks;     ///< per group: the minimum over the replica's ranks
  int64_t max_num_seqs = 0;            ///< slots
  /// Of the slots, those below it have room for penalties and biases: SlotSampling of the others has neither.
  int64_t max_num_adjusted = std::numeric_limits<int64_t>::max();
  int64_t max_num_batched_tokens = 0;  ///< tokens of one step
  int64_t max_logits_rows = 0;         ///< logits rows of one step; >= max_num_seqs
  /// Scores of prompts of one step: a position's most likely tokens are one row, its list another. 0: none.
  int64_t max_scored_rows = 0;
  int64_t max_hidden_rows = 0;         ///< positions of one step whose hidden states are brought back
  int64_t max_logprobs = 0;            ///< most likely tokens reported per position, at most; the vocabulary: no limit
  int64_t max_model_len = 0;
  int64_t vocab_size = 0;
  int max_steps_in_flight = 1;
  /// Pipeline stages. With more than one, a sampled token reaches the first stage with a later plan: a sequence's next
  /// token can be planned when its last has been collected, not before.
  int num_stages = 1;
};

/// Executes steps of one replica. Implemented by ModelRunner, by the tests' fake and (later) by a cost model.
/// launch() may be called again before collect() up to max_steps_in_flight times; collect() in ticket order.
class Runner {
 public:
  virtual ~Runner() = default;
  virtual const RunnerLimits& limits() const = 0;
  /// Enqueues the step; the plan's content has been taken over when it returns.
  virtual Ticket launch(const StepPlan& plan) = 0;
  /// Waits for the step. A plan that is dummy gives a result without slots.
  virtual StepResult collect(Ticket ticket) = 0;
};

}  // namespace tokenmill
