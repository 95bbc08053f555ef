#include "engine/sequence.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill {

Sequence::Sequence(int64_t handle, std::shared_ptr<const std::vector<int32_t>> prompt_token_ids, int64_t max_num_tokens,
                   SequenceSampling sampling, SequenceOptions options)
    : handle_(handle),
      prompt_(std::move(prompt_token_ids)),
      num_prompt_tokens_(static_cast<int64_t>(prompt_->size())),
      max_num_tokens_(max_num_tokens),
      sampling_(std::move(sampling)),
      options_(std::move(options)) {
  TM_ASSERT(num_prompt_tokens_ > 0 && max_num_tokens >= num_prompt_tokens_, "prompt {}, limit {}", num_prompt_tokens_,
            max_num_tokens);
  TM_ASSERT(sampling_.params != nullptr);
  if (!sampling_.params->prompt_logprobs) num_scores_planned_ = sampling_.params->prompt_logprob_ids.start;
  if (options_.is_scored_before) num_scores_planned_ = num_prompt_tokens_ - 1;
  is_hidden_collected_ = options_.is_scored_before;
  num_scores_collected_ = num_scores_planned_;
  if (options_.generated_before.empty()) return;
  token_ids_ = *prompt_;
  token_ids_.insert(token_ids_.end(), options_.generated_before.begin(), options_.generated_before.end());
  prompt_.reset();
  options_.generated_before = {};
  TM_ASSERT(num_known_tokens() < max_num_tokens, "{} tokens, limit {}", num_known_tokens(), max_num_tokens);
}

SlotSampling Sequence::slot_sampling(int64_t vocab_size) const {
  SlotSampling slot = tokenmill::slot_sampling(*sampling_.params, sampling_.key, vocab_size);
  if (!is_prompt_scored()) slot.num_prompt_logprobs = -1;
  return slot;
}

int64_t Sequence::max_num_computed() const {
  const bool whole_prompt = sampling_.params->hidden_states != HiddenStates::kNone && options_.sample_index == 0;
  return std::max(max_num_tokens_ - 1, whole_prompt ? num_prompt_tokens_ : 0);
}

int64_t Sequence::num_schedulable_tokens() const { return num_schedulable_tokens_from(num_computed_tokens_); }

int64_t Sequence::num_schedulable_tokens_from(int64_t position) const {
  const bool needs_history =
      awaits_tokens_ || (sampling_.constraints != nullptr && sampling_.constraints->needs_history());
  if (num_pending_tokens_ > 0 && needs_history) return 0;
  return std::max<int64_t>(0, std::min(num_tokens(), max_num_computed()) - position);
}

}  // namespace tokenmill
