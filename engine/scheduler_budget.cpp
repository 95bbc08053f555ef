// What one plan may take: tokens, logits rows, scores, and its share of a pipeline's work.
#include <algorithm>

#include "engine/scheduler.h"

namespace tokenmill {

Scheduler::Budget Scheduler::make_budget(int64_t num_decodes) const {
  Budget budget{limits_.max_num_batched_tokens, limits_.max_num_batched_tokens, limits_.max_logits_rows,
                limits_.max_scored_rows};
  if (!micro_batches_.is_pipeline()) return budget;
  // Of those that wait, as many as there are slots for.
  const auto num_slots = free_slots_.size();
  int64_t num_tokens = num_waiting_ > num_slots ? num_waiting_tokens_ / num_waiting_ * num_slots : num_waiting_tokens_;
  for (const std::unique_ptr<Sequence>& sequence : running_) {
    const int64_t wanted = sequence->num_schedulable_tokens();
    if (wanted > 1) num_tokens += wanted;
  }
  budget.prompt_tokens = micro_batches_.prompt_share(num_tokens, num_decodes);
  return budget;
}

// In a pipeline: this plan's share of the decodes, those first that have waited longest. Returns their number.
int64_t Scheduler::choose_decodes() {
  if (!micro_batches_.is_pipeline()) return 0;
  ready_.clear();
  int64_t num_decodes = 0;
  for (const std::unique_ptr<Sequence>& sequence : running_) {
    const bool is_ready = sequence->num_schedulable_tokens() == 1;
    const bool comes_back = sequence->num_pending_tokens_ > 0 && sequence->num_tokens() < sequence->max_num_tokens_;
    if (is_ready) ready_.push_back(sequence.get());
    num_decodes += is_ready || comes_back ? 1 : 0;
  }
  const auto share = static_cast<size_t>(micro_batches_.decode_share(num_decodes));
  if (ready_.size() > share) {
    std::stable_sort(ready_.begin(), ready_.end(),
                     [](const Sequence* a, const Sequence* b) { return a->last_step_ < b->last_step_; });
    ready_.resize(share);
  }
  for (Sequence* sequence : ready_) sequence->turn_ = next_step_id_;
  return static_cast<int64_t>(ready_.size());
}

// What the step has room for. Without a logits row left, the token that would need one waits; so do positions that
// are to be scored.
int64_t Scheduler::num_tokens_within(const Sequence& sequence, int64_t start, const Budget& budget) const {
  const int64_t wanted = sequence.num_schedulable_tokens_from(start);
  int64_t num_tokens = std::min(wanted, budget.tokens);
  const bool decodes = sequence.status_ == SequenceStatus::kRunning && wanted == 1;
  // Where prompts are not cut, the last one may exceed the plan's share.
  const bool within_share = options_.enable_chunked_prefill || budget.prompt_tokens <= 0;
  if (!decodes && within_share) num_tokens = std::min(num_tokens, std::max<int64_t>(0, budget.prompt_tokens));
  if (options_.enable_chunked_prefill && options_.long_prefill_token_threshold > 0) {
    num_tokens = std::min(num_tokens, options_.long_prefill_token_threshold);
  }
  int64_t end = start + num_tokens;
  if (sequence.is_prompt_scored()) {
    const int64_t last = std::max(start, sequence.num_scores_planned_) + budget.scored_rows / sequence.num_score_rows();
    if (last < sequence.num_prompt_tokens_ - 1) end = std::min(end, last);
  }
  if (end > start && end == sequence.num_tokens() && budget.logits_rows == 0) --end;
  return end - start;
}

}  // namespace tokenmill
