#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/block_manager.h"
#include "engine/request.h"
#include "engine/runner.h"
#include "engine/sequence.h"
#include "engine/step_plan.h"
#include "engine/waiting_queue.h"

namespace tokenmill {

struct SchedulerOptions {
  /// False: a prompt is computed in one step or not yet. (One that is scored may still take several: the scores of a
  /// step have their own limit.)
  bool enable_chunked_prefill = true;
};

/// What a collected step brought to a sequence. The tokens are in sequence->token_ids() already.
struct SequenceUpdate {
  Sequence* sequence = nullptr;
  std::span<const SampledToken> tokens;
  std::span<const SampledToken> scored;  ///< the next prompt tokens in order, each once
};

/// Continuous batching of one replica: decides what each step computes. Pure host logic; one thread.
///
/// Order: running sequences first, oldest first (one token each, or the rest of a prompt), then the waiting ones in
/// WaitingQueue's order, as far as the step's tokens, logits rows, slots and KV blocks go. A sequence is admitted only
/// when the blocks of its longest possible course fit beside those of all admitted before it, so growth never fails. A
/// waiting sequence never overtakes another. A row's result does not depend on any of this.
///
/// Up to limits.max_steps_in_flight plans may be made before the oldest result is given to update(). A step's cost is
/// proportional to the sequences that run, not to those that wait.
class Scheduler {
 public:
  Scheduler(const RunnerLimits& limits, const SchedulerOptions& options);

  /// Why a sequence of this size could never run here, or nothing. max_num_tokens as Sequence's.
  std::optional<FieldError> refusal(int64_t num_prompt_tokens, int64_t max_num_tokens) const;
  /// Queues a sequence that is not refused; owns it from now on.
  void add(std::unique_ptr<Sequence> sequence);

  /// Fills plan (reused between calls; its memory is kept) with the next step. Returns false when nothing can be
  /// computed before a result comes back, or at all. Call only while num_steps_in_flight() <
  /// limits.max_steps_in_flight.
  bool schedule(StepPlan& plan);
  /// Sequences that entered a slot with the last plan; valid until the next schedule().
  std::span<Sequence* const> admitted() const { return admitted_; }

  /// Takes the result of the oldest step in flight. Tokens of sequences that have been finished or rewound since that
  /// step was planned are dropped. The answer is valid until the next update(), and while `result` lives.
  std::span<const SequenceUpdate> update(const StepResult& result);

  /// Ends a running sequence: its slot is free for the next plan, its blocks once no step in flight uses them. The
  /// sequence lives until the next schedule().
  void finish(Sequence& sequence);
  /// Drops the last num_tokens collected samples of a running sequence, and everything pending; the next plan goes on
  /// from what is left.
  void rewind(Sequence& sequence, int64_t num_tokens);

  int num_steps_in_flight() const { return static_cast<int>(next_step_id_ - oldest_step_id_); }
  int64_t num_running() const { return num_running_; }
  int64_t num_waiting() const { return waiting_.size(); }
  /// Prompt tokens planned so far.
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }
  const BlockManager& blocks() const { return blocks_; }

 private:
  // What a launched step will bring back.
  struct Entry {
    Sequence* sequence;
    int32_t slot;
    uint32_t epoch;
    bool wants_logits;
    int32_t num_scored;
  };
  struct Budget {
    int64_t tokens;
    int64_t logits_rows;
    int64_t scored_rows;
  };

  void discard_finished();
  void schedule_running(StepPlan& plan, Budget& budget);
  void admit_waiting(StepPlan& plan, Budget& budget);
  int64_t num_tokens_within(const Sequence& sequence, const Budget& budget) const;
  void plan_scores(Sequence& sequence, ScheduledSlot& slot, Budget& budget);
  void schedule_tokens(Sequence& sequence, int64_t num_tokens, BlockTables& appended, StepPlan& plan, Budget& budget);
  bool reserve(const Sequence& sequence);
  void release_blocks(Sequence& sequence);
  std::vector<Entry>& step_entries(uint64_t step_id);

  RunnerLimits limits_;
  SchedulerOptions options_;
  BlockManager blocks_;
  WaitingQueue waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;   // by admission; finished ones until the next schedule()
  std::vector<std::unique_ptr<Sequence>> draining_;  // finished, still used by steps in flight
  std::vector<int64_t> reserved_blocks_;             // per group: longest courses of running_ and draining_
  std::vector<int32_t> free_slots_;                  // a stack
  std::vector<int32_t> finished_slots_;              // not yet told to the runner
  std::vector<std::vector<Entry>> in_flight_;        // ring over step ids
  uint64_t next_step_id_ = 1;
  uint64_t oldest_step_id_ = 1;
  int64_t num_running_ = 0;
  int64_t num_prompt_tokens_ = 0;
  size_t num_scheduled_ = 0;  // entries of plan.scheduled in use while a plan is made
  std::vector<Sequence*> admitted_;
  std::vector<SequenceUpdate> updates_;
  BlockTables appended_;  // scratch
};

}  // namespace tokenmill
