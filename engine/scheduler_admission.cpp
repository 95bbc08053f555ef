// The way between waiting and running: entering, forking, preemption.
#include <algorithm>
#include <iterator>

#include "engine/scheduler.h"
#include "kernels/core/check.h"
#include "kernels/core/stopwatch.h"

namespace tokenmill {

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  std::vector<std::unique_ptr<Sequence>> samples;
  samples.push_back(std::move(sequence));
  add(std::move(samples));
}

void Scheduler::add(std::vector<std::unique_ptr<Sequence>> samples) {
  TM_ASSERT(!samples.empty());
  const Stopwatch stopwatch(plan_seconds_);
  const auto first_sample = samples.size() > 1 ? std::make_shared<Sequence*>(samples.front().get()) : nullptr;
  for (std::unique_ptr<Sequence>& sample : samples) {
    TM_ASSERT(sample->status() == SequenceStatus::kWaiting);
    TM_ASSERT(!refusal(sample->num_prompt_tokens(), sample->max_num_tokens(),
                       sample->max_num_computed() >= sample->num_prompt_tokens()));
    TM_ASSERT(!sample->is_prompt_scored() || sample->num_score_rows() <= limits_.max_scored_rows);
    sample->blocks_.tables.resize(limits_.kv_groups.size());
    sample->blocks_.first_kept.assign(limits_.kv_groups.size(), 0);
    sample->first_sample_ = first_sample;
    sample->awaits_tokens_ = micro_batches_.is_pipeline();
    count_waiting(*sample, 1);
  }
  std::unique_ptr<Sequence>& first = samples.front();
  blocks_.follow(first->blocks_, first->options_.cache_identity, first->token_ids());
  first->forks_.assign(std::make_move_iterator(samples.rbegin()), std::make_move_iterator(samples.rend() - 1));
  if (!first->skips_reading_prefix_cache()) blocks_.announce(first->blocks_);
  pages_.clear();
  const std::vector<SequenceBlocks::Prefix>& prefixes = first->blocks_.prefixes;
  if (!prefixes.empty())  // the order knows one block size
    for (const PrefixNode* node : prefixes.front().path) pages_.push_back(node->hash.low);
  const int64_t expected_tokens = admission_.lengths().predict(*first);
  waiting_.push(std::move(first), pages_, expected_tokens);
}

// Before all others: it has run, or its prompt has.
void Scheduler::return_to_front(std::unique_ptr<Sequence> sequence) {
  if (!sequence->skips_reading_prefix_cache()) blocks_.announce(sequence->blocks_);
  for (; !deferred_.empty(); deferred_.pop_back()) waiting_.push_front(std::move(deferred_.back()));
  waiting_.push_front(std::move(sequence));
}

// The next of the samples behind it that has not ended, with those behind that one; null when there is none.
std::unique_ptr<Sequence> Scheduler::next_fork(Sequence& sequence) {
  std::vector<std::unique_ptr<Sequence>> forks = std::move(sequence.forks_);
  sequence.forks_.clear();
  std::erase(forking_, &sequence);
  while (!forks.empty()) {
    std::unique_ptr<Sequence> next = std::move(forks.back());
    forks.pop_back();
    if (next->status_ == SequenceStatus::kFinished) {
      draining_.push_back(std::move(next));
      continue;
    }
    next->forks_ = std::move(forks);
    blocks_.follow(next->blocks_, next->options_.cache_identity, next->token_ids());
    return next;
  }
  return nullptr;
}

void Scheduler::release_forks_of(Sequence& sequence) {
  if (std::unique_ptr<Sequence> next = next_fork(sequence)) return_to_front(std::move(next));
}

void Scheduler::release_forks() {
  for (size_t i = forking_.size(); i > 0; --i) {
    Sequence& sequence = *forking_[i - 1];
    if (sequence.prompt_step_ > 0) release_forks_of(sequence);
  }
}

void Scheduler::preempt(size_t index) {
  std::unique_ptr<Sequence> sequence = std::move(running_[index]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  free_slots_.give_back(sequence->slot_);
  preempted_slots_.push_back(sequence->slot_);
  blocks_.release(sequence->blocks_, sequence->last_step_);
  std::erase(forking_, sequence.get());
  sequence->status_ = SequenceStatus::kWaiting;
  sequence->slot_ = -1;
  sequence->num_pending_tokens_ = 0;
  sequence->num_computed_tokens_ = 0;
  sequence->num_scores_planned_ = sequence->num_scores_collected_;
  sequence->last_sampled_position_ = -1;
  sequence->prompt_step_ = 0;
  ++sequence->epoch_;
  ++sequence->num_preemptions_;
  ++stats_.num_preemptions;
  --num_running_;
  count_waiting(*sequence, 1);
  return_to_front(std::move(sequence));
}

// The sample that takes the place in the queue of one that has entered; the first's wait for its prompt.
std::unique_ptr<Sequence> Scheduler::fork_behind(Sequence& entered) {
  if (entered.sample_index() == 0) return nullptr;
  std::unique_ptr<Sequence> next = next_fork(entered);
  if (next != nullptr && !next->skips_reading_prefix_cache()) blocks_.announce(next->blocks_);
  return next;
}

void Scheduler::admit_waiting(StepPlan& plan, Budget& budget) {
  if (num_waiting_ == 0 || free_slots_.size() == 0 || budget.tokens == 0 || budget.prompt_tokens <= 0) return;
  admission_.begin(blocks_, running_);
  for (size_t i = 0; i < deferred_.size();) {
    const bool is_waiting = deferred_[i]->status_ == SequenceStatus::kWaiting;
    const Verdict verdict = is_waiting ? admit(*deferred_[i], plan, budget) : Verdict::kAdmitted;
    if (verdict == Verdict::kBlocked) return;
    if (verdict == Verdict::kWaitsForPrefix) {
      ++i;
      continue;
    }
    const auto at = deferred_.begin() + static_cast<std::ptrdiff_t>(i);
    if (!is_waiting) {
      discard(std::move(*at));
      deferred_.erase(at);
      continue;
    }
    running_.push_back(std::move(*at));
    *at = fork_behind(*running_.back());
    if (*at == nullptr) deferred_.erase(at);
  }
  while (!waiting_.empty()) {
    if (waiting_.front().status_ == SequenceStatus::kFinished) {
      discard(waiting_.pop());
      continue;
    }
    const Verdict verdict = admit(waiting_.front(), plan, budget);
    if (verdict == Verdict::kAdmitted) {
      running_.push_back(waiting_.pop());
      if (std::unique_ptr<Sequence> next = fork_behind(*running_.back())) waiting_.push_front(std::move(next));
    } else if (verdict == Verdict::kWaitsForPrefix && static_cast<int64_t>(deferred_.size()) < limits_.max_num_seqs) {
      deferred_.push_back(waiting_.pop());
    } else {
      return;
    }
  }
}

Scheduler::Verdict Scheduler::admit(Sequence& sequence, StepPlan& plan, Budget& budget) {
  if (!free_slots_.has_one(sequence.is_adjusted()) || budget.tokens == 0 || budget.prompt_tokens <= 0)
    return Verdict::kBlocked;
  // Where the copy of a last block has no room, the block is computed again.
  for (const bool may_copy : {true, false}) {
    const PrefixHit hit = find_hit(sequence, may_copy);
    if (!sequence.skips_reading_prefix_cache() && blocks_.is_being_computed(sequence.blocks_, hit.num_tokens)) {
      return Verdict::kWaitsForPrefix;
    }
    const std::optional<int64_t> num_tokens = num_tokens_to_admit(sequence, hit, budget);
    if (!num_tokens) continue;
    enter(sequence, hit, *num_tokens, plan, budget);
    return Verdict::kAdmitted;
  }
  return Verdict::kBlocked;
}

// The longest part of its tokens that need not be computed: from the request's first sample, else from the cache.
PrefixHit Scheduler::find_hit(const Sequence& sequence, bool may_copy) const {
  const Sequence* first = sequence.first_sample_ != nullptr ? *sequence.first_sample_ : nullptr;
  const bool can_fork = first != nullptr && first != &sequence && first->status_ == SequenceStatus::kRunning &&
                        first->prompt_step_ > 0 && first->prompt_step_ < next_step_id_;
  if (can_fork) {
    PrefixHit hit = blocks_.fork_hit(first->blocks_, blocks_.longest_hit(sequence.num_prompt_tokens_, may_copy));
    if (hit.num_tokens > 0) return hit;
  }
  if (sequence.skips_reading_prefix_cache()) return blocks_.no_hit();
  return blocks_.find_hit(sequence.blocks_, sequence.num_known_tokens(), next_step_id_, may_copy);
}

// How many tokens the sequence computes in this step if it enters with the hit; nothing when it cannot enter.
std::optional<int64_t> Scheduler::num_tokens_to_admit(const Sequence& sequence, const PrefixHit& hit,
                                                      const Budget& budget) const {
  const int64_t wanted = sequence.num_schedulable_tokens_from(hit.num_tokens);
  int64_t num_tokens = num_tokens_within(sequence, hit.num_tokens, budget);
  if (num_running_ == 0) {
    num_tokens = std::min(num_tokens, blocks_.num_tokens_that_fit(hit));  // alone it goes on with what there is
  } else if (!admission_.fits(blocks_, sequence, hit)) {
    return std::nullopt;
  }
  if (num_tokens <= 0) return std::nullopt;
  // After a preemption a prompt and what was generated may be longer than any step.
  const bool whole =
      !options_.enable_chunked_prefill && sequence.num_generated_tokens() == 0 && !sequence.is_prompt_scored();
  if (whole && num_tokens < wanted) return std::nullopt;
  const int64_t most = options_.max_num_partial_prefills;
  if (wanted - num_tokens > 1 && most > 0 && num_partial_ >= most) return std::nullopt;
  return num_tokens;
}

void Scheduler::enter(Sequence& sequence, const PrefixHit& hit, int64_t num_tokens, StepPlan& plan, Budget& budget) {
  blocks_.withdraw(sequence.blocks_);
  sequence.status_ = SequenceStatus::kRunning;
  sequence.slot_ = free_slots_.take(sequence.is_adjusted());
  blocks_.take_hit(sequence.blocks_, hit, next_step_id_, plan.copies, plan.fresh_blocks);
  sequence.num_computed_tokens_ = hit.num_tokens;
  const bool looks_up = sequence.options_.sample_index == 0 && !sequence.skips_reading_prefix_cache();
  if (options_.enable_prefix_caching && looks_up && sequence.num_preemptions_ == 0) {
    sequence.num_cached_tokens_ = hit.num_tokens;
    stats_.num_queried_tokens += sequence.num_prompt_tokens_;
    stats_.num_hit_tokens += hit.num_tokens;
  }
  NewSlot& slot = plan.new_slots.emplace_back();
  slot.slot = sequence.slot_;
  if (sequence.prompt_ != nullptr) {
    sequence.token_ids_ = *sequence.prompt_;
    sequence.prompt_.reset();
  }
  slot.token_ids = sequence.token_ids_;
  slot.num_prompt_tokens = sequence.num_prompt_tokens_;
  slot.sampling = sequence.slot_sampling(limits_.vocab_size);
  slot.block_ids = sequence.blocks_.tables;
  schedule_tokens(sequence, num_tokens, slot.block_ids, plan, budget);
  budget.prompt_tokens -= num_tokens;
  if (sequence.num_schedulable_tokens() > 1) ++num_partial_;
  if (sequence.sample_index() == 0 && !sequence.forks_.empty()) forking_.push_back(&sequence);
  admission_.admitted(blocks_, sequence);
  admitted_.push_back(&sequence);
  ++num_running_;
  count_waiting(sequence, -1);
}

}  // namespace tokenmill
