#pragma once
#include <cstdint>
#include <deque>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "engine/runner.h"

namespace tokenmill::test {

/// A model without arithmetic: the next token is a hash of the sequence's random key and of the tokens each KV group
/// shows (all of them, or the window), so one wrong token, key or table entry changes what follows.
struct FakeModel {
  std::vector<KvSpec> kv_groups;
  int64_t vocab_size = 0;
  uint64_t seed = 0;
  int64_t fails_one_in = 0;  ///< one of so many next tokens is non-finite; 0: none

  /// shown[g]: the tokens group g shows, oldest first. A masked token gives way to the next id that is not.
  SampledToken next(const std::vector<std::vector<int32_t>>& shown, uint64_t key,
                    const StepConstraints& constraints = {}) const;
  /// The same from the whole sequence: what one-at-a-time execution gives.
  SampledToken next(std::span<const int32_t> token_ids, uint64_t key, const StepConstraints& constraints = {}) const;
  /// The score of token_id behind them: a hash, too. `top` has num_logprobs entries.
  SampledToken score(const std::vector<std::vector<int32_t>>& shown, int32_t token_id, int32_t num_logprobs) const;
  SampledToken score(std::span<const int32_t> token_ids, int32_t token_id, int32_t num_logprobs) const;
  /// One position's hidden state: a small whole number, so that sums are exact.
  float hidden(const std::vector<std::vector<int32_t>>& shown) const;
  float hidden(std::span<const int32_t> token_ids) const;
};

/// A Runner over FakeModel. It keeps its own paged store of token ids, writes through the block tables that the plans
/// build and reads back through them, and throws std::logic_error on a plan that breaks a rule: limits, slots,
/// positions that are not contiguous, literal tokens that nobody has collected, in a pipeline a last sampled token,
/// blocks out of range, handed out while a table holds them or a step in flight may read them, handed out again without
/// standing in fresh_blocks, shared or copied without holding the tokens in front of the sequence, or overwritten while
/// another table holds them, positions scored twice or out of order, hidden states likewise. A hidden state is {sum over its positions, their number}.
class FakeRunner : public Runner {
 public:
  /// limits.kv_groups and vocab_size must be the model's. allow_rewinds: a slot may go back to an earlier position.
  FakeRunner(const FakeModel& model, const RunnerLimits& limits, bool allow_rewinds = false);

  const RunnerLimits& limits() const override { return limits_; }
  Ticket launch(const StepPlan& plan) override;
  StepResult collect(Ticket ticket) override;

  int64_t num_steps() const { return num_steps_; }
  int64_t num_sampled_tokens() const { return num_sampled_tokens_; }
  int64_t num_steps_in_flight() const { return static_cast<int64_t>(in_flight_.size()); }

 private:
  struct Token {
    int32_t id = 0;
    uint64_t sampled_in = 0;  ///< step; 0: literal
  };
  struct Slot {
    bool used = false;
    std::vector<Token> tokens;
    std::vector<std::vector<int32_t>> blocks;  ///< per group
    SlotSampling sampling;
    int64_t num_prompt_tokens = 0;
    int64_t num_computed = 0;
    bool has_entered = false;  ///< its first scheduled position has been seen
    std::vector<float> hidden;  ///< so far
    int64_t hidden_end = 0;     ///< its positions come from here on, but for a last one alone
    int64_t scored_end = 0;    ///< prompt positions before it have been scored or never will be
    int64_t last_sampled_position = -1;
  };
  struct Block {
    int32_t num_tables = 0;  ///< slots that hold it
    int32_t num_joined = 0;  ///< of them, those that got it in step joined_in
    uint64_t joined_in = 0;
    bool used_before = false;
    uint64_t last_step = 0;  ///< the last step whose scheduled slots had it in their table
    std::vector<int32_t> token_ids;
  };

  void apply(const StepPlan& plan);
  void release(int32_t slot);
  void shrink(const ShrunkSlot& shrunk);
  void copy(const GroupCopies& copies);
  void hand_out(Slot& slot, int32_t slot_id, const std::vector<std::vector<int32_t>>& block_ids, const StepPlan& plan,
                bool may_share);
  void store(const ScheduledSlot& scheduled, const StepPlan& plan);
  void sample(const ScheduledSlot& scheduled, uint64_t step_id, StepResult::Slot& out);
  int64_t num_score_rows(const StepPlan& plan);
  void score(const ScheduledSlot& scheduled, StepResult::Slot& out);
  void bring_hidden(const ScheduledSlot& scheduled, StepResult::Slot& out);
  std::vector<std::vector<int32_t>> shown(const Slot& slot, int64_t position) const;
  Slot& slot_at(int32_t slot);

  FakeModel model_;
  RunnerLimits limits_;
  bool allow_rewinds_;
  std::vector<Slot> slots_;
  std::vector<std::vector<Block>> blocks_;       ///< per group
  std::set<std::pair<size_t, int32_t>> copied_;  ///< (group, block): destinations of the current plan's copies
  std::deque<std::pair<Ticket, StepResult>> in_flight_;
  uint64_t last_launched_step_ = 0;
  uint64_t last_collected_step_ = 0;
  Ticket next_ticket_ = 100;
  int64_t num_steps_ = 0;
  int64_t num_sampled_tokens_ = 0;
};

}  // namespace tokenmill::test
