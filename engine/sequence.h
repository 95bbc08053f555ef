#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/block_manager.h"
#include "engine/sample_constraints.h"
#include "engine/step_plan.h"

namespace tokenmill {

enum class SequenceStatus : uint8_t {
  kWaiting,   ///< queued, holds no slot and no blocks; again after a preemption
  kRunning,   ///< has a slot; its blocks grow as it does
  kFinished,  ///< slot given back; blocks stay until the last step that uses them has been collected
};

/// How a sequence's tokens are chosen; the samples of a request share all but the key.
struct SequenceSampling {
  std::shared_ptr<const SamplingParams> params;                    ///< checked and normalized
  uint64_t key = 0;                                                ///< of its random stream
  std::shared_ptr<const SampleConstraints> constraints = nullptr;  ///< null when no position has any
};

/// What the scheduler must know about a sequence besides its tokens.
struct SequenceOptions {
  int sample_index = 0;
  CacheIdentity cache_identity;
  bool skip_reading_prefix_cache = false;  ///< compute everything, whatever is cached
  std::vector<int32_t> generated_before = {};  ///< it goes on behind these
  bool is_scored_before = false;               ///< the scores of its prompt are there, and its hidden state
};

/// One sample on its way: its tokens, how far it has been computed, and where its KV lies. Counting rules:
///   known    tokens whose ids are on the host: the prompt and the samples collected so far
///   pending  samples of launched steps that have not been collected: they count as tokens, their ids are not known yet
///   computed positions whose KV the launched steps write or that were found computed; computed <= known + pending
/// Changed by the Scheduler only.
class Sequence {
 public:
  /// handle: the owner's word for it, given back with every result. prompt_token_ids: shared by the samples of a
  /// request; a sequence has tokens of its own from its first slot on. max_num_tokens: prompt and generated tokens at
  /// most; the prompt's length when it is only scored.
  Sequence(int64_t handle, std::shared_ptr<const std::vector<int32_t>> prompt_token_ids, int64_t max_num_tokens,
           SequenceSampling sampling, SequenceOptions options = {});

  int64_t handle() const { return handle_; }
  int sample_index() const { return options_.sample_index; }
  const SequenceOptions& options() const { return options_; }
  SequenceStatus status() const { return status_; }
  /// Prompt, then the samples collected so far.
  const std::vector<int32_t>& token_ids() const { return prompt_ != nullptr ? *prompt_ : token_ids_; }
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }
  int64_t num_generated_tokens() const { return num_known_tokens() - num_prompt_tokens_; }
  int64_t num_known_tokens() const { return static_cast<int64_t>(token_ids().size()); }
  int64_t num_pending_tokens() const { return num_pending_tokens_; }
  int64_t num_tokens() const { return num_known_tokens() + num_pending_tokens_; }
  int64_t num_computed_tokens() const { return num_computed_tokens_; }
  int64_t max_num_tokens() const { return max_num_tokens_; }
  /// Tokens a step could compute now; 0 when the last token it may have is sampled or pending, or when the next one
  /// depends on one that is pending (always so in a pipeline). The last token of a sequence is never computed, but
  /// for a prompt's hidden state.
  int64_t num_schedulable_tokens() const;
  /// The same if everything before position had been computed.
  int64_t num_schedulable_tokens_from(int64_t position) const;
  /// Prompt tokens get logprobs, all but the first or those from one on: the positions before them are scored once
  /// each. The first of a request's samples scores the prompt of all.
  bool is_prompt_scored() const { return scores_prompt(*sampling_.params) && options_.sample_index == 0; }
  /// Rows that a runner scores for each such position: one for the most likely tokens, one for its own list.
  int64_t num_score_rows() const {
    return (sampling_.params->prompt_logprobs ? 1 : 0) + (sampling_.params->prompt_logprob_ids.width > 0 ? 1 : 0);
  }
  /// Which hidden state of the prompt has not come yet; the first of a request's samples brings it for all.
  HiddenStates lacking_hidden() const {
    const bool brings = options_.sample_index == 0 && !is_hidden_collected_;
    return brings ? sampling_.params->hidden_states : HiddenStates::kNone;
  }
  /// Positions that are computed at most: all but the last token's, and the whole prompt for its hidden state.
  int64_t max_num_computed() const;
  /// It computes what is cached all the same: it was asked to, or positions are still to be scored, or their hidden
  /// states have to come.
  bool skips_reading_prefix_cache() const {
    return options_.skip_reading_prefix_cache || (is_prompt_scored() && num_scores_planned_ < num_prompt_tokens_ - 1) ||
           lacking_hidden() == HiddenStates::kMean;
  }
  /// It has penalties or biases, and so needs a slot with tables.
  bool is_adjusted() const { return adjusts_logits(*sampling_.params); }
  /// What its slot must know; made anew each time.
  SlotSampling slot_sampling(int64_t vocab_size) const;
  int32_t slot() const { return slot_; }
  const BlockTables& block_tables() const { return blocks_.tables; }
  /// Prompt tokens found in the prefix cache when it was first admitted.
  int64_t num_cached_tokens() const { return num_cached_tokens_; }
  int64_t num_preemptions() const { return num_preemptions_; }
  /// Blocks and the paths of its known tokens through the prefix trees (one per block size).
  const SequenceBlocks& blocks() const { return blocks_; }

 private:
  friend class Scheduler;

  int64_t handle_;
  std::shared_ptr<const std::vector<int32_t>> prompt_;  // until it first enters a slot
  std::vector<int32_t> token_ids_;                      // from then on
  int64_t num_prompt_tokens_;
  int64_t max_num_tokens_;
  SequenceSampling sampling_;
  SequenceOptions options_;
  SequenceStatus status_ = SequenceStatus::kWaiting;
  int32_t slot_ = -1;
  int64_t num_pending_tokens_ = 0;
  int64_t num_computed_tokens_ = 0;
  int64_t num_scores_planned_ = 0;      // prompt positions [0, n) are scored once the launched steps are done
  int64_t num_scores_collected_ = 0;    // and of those the first so many have come back
  bool is_hidden_collected_ = false;    // the prompt's hidden state
  int64_t last_sampled_position_ = -1;  // of the token that last_token[slot] holds once launched steps are done
  int32_t num_steps_in_flight_ = 0;     // launched steps that will bring an entry of it
  uint64_t last_step_ = 0;              // the last launched step that uses its slot and blocks
  bool awaits_tokens_ = false;          // its steps take tokens that have been collected only
  uint64_t turn_ = 0;                   // in a pipeline: the last step whose share of the decodes it was in
  uint32_t epoch_ = 0;                  // counts rewinds: results of steps planned before one are dropped
  SequenceBlocks blocks_;

  // Samples of one request. The first computes the prompt, the others follow when it has.
  // Those behind it that have not been queued, the next one last: the first sample's until its prompt has been planned,
  // then the next one's, which gives them on when it enters. So a request has one place in the queue.
  std::vector<std::unique_ptr<Sequence>> forks_;
  std::shared_ptr<Sequence*> first_sample_;       // of all; null inside once the first has finished
  uint64_t prompt_step_ = 0;                      // the step that computes the prompt's last position; 0: none yet

  // What is counted once.
  int64_t num_prompt_tokens_counted_ = 0;
  int64_t num_ever_computed_ = 0;
  int64_t num_cached_tokens_ = 0;
  int64_t num_preemptions_ = 0;
};

}  // namespace tokenmill
