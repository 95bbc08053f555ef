#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/sample_constraints.h"
#include "engine/step_plan.h"

namespace tokenmill {

/// Block ids per KV group, in order of position: entry b of a group covers positions [b * block_size, (b+1) *
/// block_size).
using BlockTables = std::vector<std::vector<int32_t>>;

enum class SequenceStatus : uint8_t {
  kWaiting,   ///< queued, holds no slot and no blocks
  kRunning,   ///< has a slot; its blocks grow as it does
  kFinished,  ///< slot given back; blocks stay until the last step that uses them has been collected
};

/// One sample on its way: its tokens, how far it has been computed, and where its KV lies. Counting rules:
///   known    tokens whose ids are on the host: the prompt and the samples collected so far
///   pending  samples of launched steps that have not been collected: they count as tokens, their ids are not known yet
///   computed positions whose KV the launched steps write; computed <= known + pending
/// Changed by the Scheduler only.
class Sequence {
 public:
  /// handle: the owner's word for it, given back with every result. max_num_tokens: prompt and generated tokens at
  /// most; the prompt's length when it is only scored. constraints: null when no position has any.
  Sequence(int64_t handle, std::vector<int32_t> prompt_token_ids, int64_t max_num_tokens, const SlotSampling& sampling,
           std::unique_ptr<const SampleConstraints> constraints = nullptr);

  int64_t handle() const { return handle_; }
  SequenceStatus status() const { return status_; }
  /// Prompt, then the samples collected so far.
  const std::vector<int32_t>& token_ids() const { return token_ids_; }
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }
  int64_t num_generated_tokens() const { return num_known_tokens() - num_prompt_tokens_; }
  int64_t num_known_tokens() const { return static_cast<int64_t>(token_ids_.size()); }
  int64_t num_pending_tokens() const { return num_pending_tokens_; }
  int64_t num_tokens() const { return num_known_tokens() + num_pending_tokens_; }
  int64_t num_computed_tokens() const { return num_computed_tokens_; }
  int64_t max_num_tokens() const { return max_num_tokens_; }
  /// Tokens a step could compute now; 0 when the last token it may have is sampled or pending, or when the next one
  /// depends on one that is pending. The last token of a sequence is never computed.
  int64_t num_schedulable_tokens() const;
  /// Every prompt token but the first gets its logprob: the positions before them are scored once each.
  bool is_prompt_scored() const { return sampling_.num_prompt_logprobs >= 0; }
  const SlotSampling& sampling() const { return sampling_; }
  int32_t slot() const { return slot_; }
  const BlockTables& block_tables() const { return block_tables_; }

 private:
  friend class Scheduler;

  int64_t handle_;
  std::vector<int32_t> token_ids_;
  int64_t num_prompt_tokens_;
  int64_t max_num_tokens_;
  SlotSampling sampling_;
  std::unique_ptr<const SampleConstraints> constraints_;
  SequenceStatus status_ = SequenceStatus::kWaiting;
  int32_t slot_ = -1;
  int64_t num_pending_tokens_ = 0;
  int64_t num_computed_tokens_ = 0;
  int64_t num_scores_planned_ = 0;      // prompt positions [0, n) are scored once the launched steps are done
  int64_t num_scores_collected_ = 0;    // and of those the first so many have come back
  int64_t last_sampled_position_ = -1;  // of the token that last_token[slot] holds once launched steps are done
  int32_t num_steps_in_flight_ = 0;     // launched steps that use its slot and blocks
  uint32_t epoch_ = 0;                  // counts rewinds: results of steps planned before one are dropped
  BlockTables block_tables_;
};

}  // namespace tokenmill
