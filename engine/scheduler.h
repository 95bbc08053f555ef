#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/admission.h"
#include "engine/block_manager.h"
#include "engine/micro_batches.h"
#include "engine/request.h"
#include "engine/runner.h"
#include "engine/scheduler_options.h"
#include "engine/sequence.h"
#include "engine/slot_pool.h"
#include "engine/step_plan.h"
#include "engine/waiting_queue.h"

namespace tokenmill {

/// What has been planned since the start.
struct SchedulerStats {
  int64_t num_prompt_tokens = 0;           ///< of all requests, computed or found cached, each counted once
  int64_t num_computed_prompt_tokens = 0;  ///< prompt positions computed, again after a preemption too
  int64_t num_recomputed_tokens = 0;       ///< positions computed more than once
  int64_t num_preemptions = 0;
  int64_t num_queried_tokens = 0;    ///< prompt tokens looked up in the prefix cache, when a request is first admitted
  int64_t num_hit_tokens = 0;        ///< of them, found
  double sum_kv_waste = 0;           ///< share of the allocated KV slots that hold no token, summed over steps
  int64_t sum_kv_shared_blocks = 0;  ///< blocks that sharing saves, summed over steps
};

/// What a collected step brought to a sequence. The tokens are in sequence->token_ids() already.
struct SequenceUpdate {
  Sequence* sequence = nullptr;
  std::span<const SampledToken> tokens;
  std::span<const SampledToken> scored;  ///< the next prompt tokens in order, each once
  std::span<const float> listed;         ///< StepResult::Slot's
  std::span<const float> hidden;         ///< likewise
};

/// Continuous batching of one replica: decides what each step computes. Pure host logic; one thread.
///
/// Order: running sequences that want one token first, oldest first, so that no prompt stalls a decode; then prompts in
/// progress; then waiting sequences in the WaitingQueue's order, as far as the step's tokens, logits rows, slots and KV
/// blocks go. A sequence is admitted when its predicted peak fits beside those that run. When a running sequence lacks
/// a block after all, the youngest is preempted: it gives up slot and blocks, goes to the head of the queue and is
/// computed again. A row's result does not depend on any of this.
///
/// A waiting sequence whose next block a running one is going to compute waits for it, and others may overtake it until
/// that block has been planned; nobody overtakes a sequence that waits for slots, blocks or tokens of a step.
///
/// With limits.num_stages > 1 the plans in flight are a pipeline's micro-batches: a sequence's token must have been
/// collected before its next one is planned, and every plan takes its share (MicroBatches) of decodes and prompts.
///
/// Up to limits.max_steps_in_flight plans may be made before the oldest result is given to update(). A step's cost is
/// proportional to the sequences that run, not to those that wait.
class Scheduler {
 public:
  Scheduler(const RunnerLimits& limits, const SchedulerOptions& options);

  /// Why a sequence of this size could never run here, or nothing. max_num_tokens as Sequence's; whole_prompt: the
  /// prompt's last position is computed even if nothing is generated.
  std::optional<FieldError> refusal(int64_t num_prompt_tokens, int64_t max_num_tokens, bool whole_prompt = false) const;
  /// Queues a sequence that is not refused; owns it from now on.
  void add(std::unique_ptr<Sequence> sequence);
  /// The samples of one request, which have the same prompt: the first enters, the others when its prompt has been
  /// computed, and share it.
  void add(std::vector<std::unique_ptr<Sequence>> samples);

  /// Fills plan (reused between calls; its memory is kept) with the next step. Returns false when nothing can be
  /// computed before a result comes back, or at all. Call only while num_steps_in_flight() <
  /// limits.max_steps_in_flight. admit false: nothing enters as long as something runs.
  bool schedule(StepPlan& plan, bool admit = true);
  /// From now on nothing enters, running or not: neither what waits nor what is preempted.
  void close_admission() { closed_ = true; }
  /// Sequences that entered a slot with the last plan; valid until the next schedule().
  std::span<Sequence* const> admitted() const { return admitted_; }

  /// Takes the result of the oldest step in flight. Tokens of sequences that have been finished, preempted or rewound
  /// since that step was planned are dropped. The answer is valid until the next update(), and while `result` lives.
  std::span<const SequenceUpdate> update(const StepResult& result);

  /// Ends a sequence, running or waiting. Its slot is free for the next plan, its blocks once no step in flight uses
  /// them. keep_cached false: what it computed may be wrong and leaves the prefix cache. The sequence lives until the
  /// next schedule().
  void finish(Sequence& sequence, bool keep_cached = true);
  /// Drops the last num_tokens collected samples of a running sequence, and everything pending; the next plan goes on
  /// from what is left. The sequence is preempted when its blocks do not allow that.
  void rewind(Sequence& sequence, int64_t num_tokens);

  int num_steps_in_flight() const { return static_cast<int>(next_step_id_ - oldest_step_id_); }
  int64_t num_running() const { return num_running_; }
  int64_t num_waiting() const { return num_waiting_; }
  const SchedulerStats& stats() const { return stats_; }
  double plan_seconds() const { return plan_seconds_ + waiting_.seconds(); }  ///< on the order of waiting sequences
  const BlockManager& blocks() const { return blocks_; }
  /// BlockManager::audit over the sequences that run.
  void audit() const;

 private:
  // What a launched step will bring back.
  struct Entry {
    Sequence* sequence;
    int32_t slot;
    uint32_t epoch;
    bool wants_logits;
    int32_t num_scored;
    bool brings_results;
  };
  struct Budget {
    int64_t tokens;
    int64_t prompt_tokens;  // of them, for sequences that want more than one and for those that enter
    int64_t logits_rows;
    int64_t scored_rows;
  };
  enum class Verdict { kAdmitted, kWaitsForPrefix, kBlocked };

  void begin(StepPlan& plan);
  void discard_finished();
  void discard(std::unique_ptr<Sequence> sequence);
  void schedule_running(StepPlan& plan, Budget& budget, bool decodes);
  int64_t make_room(size_t index, int64_t num_tokens);
  size_t youngest_unscheduled() const;
  static void plan_hidden(const Sequence& sequence, ScheduledSlot& slot);
  void plan_scores(Sequence& sequence, ScheduledSlot& slot, Budget& budget);
  void schedule_tokens(Sequence& sequence, int64_t num_tokens, BlockTables& appended, StepPlan& plan, Budget& budget);
  void take_sample(Sequence& sequence, const SampledToken& token);
  void count_tokens(Sequence& sequence, int64_t start, int64_t end);
  void count_blocks();
  std::vector<Entry>& step_entries(uint64_t step_id);

  // scheduler_budget.cpp: what a plan may take
  int64_t choose_decodes();
  Budget make_budget(int64_t num_decodes) const;
  int64_t num_tokens_within(const Sequence& sequence, int64_t start, const Budget& budget) const;

  // scheduler_admission.cpp: between waiting and running
  void return_to_front(std::unique_ptr<Sequence> sequence);
  void release_forks();
  std::unique_ptr<Sequence> next_fork(Sequence& sequence);
  std::unique_ptr<Sequence> fork_behind(Sequence& entered);
  void release_forks_of(Sequence& sequence);
  void admit_waiting(StepPlan& plan, Budget& budget);
  Verdict admit(Sequence& sequence, StepPlan& plan, Budget& budget);
  std::optional<int64_t> num_tokens_to_admit(const Sequence& sequence, const PrefixHit& hit,
                                             const Budget& budget) const;
  PrefixHit find_hit(const Sequence& sequence, bool may_copy) const;
  void enter(Sequence& sequence, const PrefixHit& hit, int64_t num_tokens, StepPlan& plan, Budget& budget);
  void preempt(size_t index);
  void count_waiting(const Sequence& sequence, int sign);

  RunnerLimits limits_;
  SchedulerOptions options_;
  MicroBatches micro_batches_;
  BlockManager blocks_;
  Admission admission_;
  WaitingQueue waiting_;
  std::deque<std::unique_ptr<Sequence>> deferred_;   // taken from waiting_, wait for a prefix that is being computed
  std::vector<std::unique_ptr<Sequence>> running_;   // by admission; finished ones until the next schedule()
  std::vector<std::unique_ptr<Sequence>> draining_;  // finished, still named by steps in flight
  std::vector<Sequence*> forking_;                   // running first samples whose request has more
  SlotPool free_slots_;
  // Not yet told to the runner: they go out with the next plan that is launched.
  std::vector<int32_t> finished_slots_, preempted_slots_;
  std::vector<ShrunkSlot> shrunk_slots_;
  std::vector<std::vector<Entry>> in_flight_;  // ring over step ids
  uint64_t next_step_id_ = 1;
  uint64_t oldest_step_id_ = 1;
  int64_t num_running_ = 0, num_waiting_ = 0;
  int64_t num_waiting_tokens_ = 0;  // that waiting sequences will compute if they hit nothing
  SchedulerStats stats_;
  bool closed_ = false;       // nothing enters any more
  double plan_seconds_ = 0;   // in add()
  size_t num_scheduled_ = 0;  // entries of plan.scheduled in use while a plan is made
  int64_t num_partial_ = 0;   // prompts in progress while a plan is made
  std::vector<Sequence*> admitted_;
  std::vector<SequenceUpdate> updates_;
  BlockTables appended_;         // scratch
  std::vector<uint64_t> pages_;  // scratch
  std::vector<Sequence*> ready_;  // scratch
};

}  // namespace tokenmill
