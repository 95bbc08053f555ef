#include "engine/scheduler.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill {
namespace {

void clear_lists(std::vector<std::vector<int32_t>>& lists, size_t num_groups) {
  lists.resize(num_groups);
  for (std::vector<int32_t>& list : lists) list.clear();
}

}  // namespace

Scheduler::Scheduler(const RunnerLimits& limits, const SchedulerOptions& options)
    : limits_(limits),
      options_(options),
      micro_batches_(limits, options),
      blocks_(limits.kv_groups, limits.num_blocks, options.enable_prefix_caching),
      admission_(limits, options),
      waiting_({.order = options.waiting_order}),
      free_slots_(limits.max_num_seqs, limits.max_num_adjusted) {
  TM_ASSERT(limits.max_num_seqs > 0 && limits.max_num_adjusted > 0 && limits.max_num_batched_tokens > 0 &&
                limits.max_logits_rows > 0 && limits.max_steps_in_flight > 0,
            "{} slots, {} tokens, {} logits rows per step, {} steps in flight", limits.max_num_seqs,
            limits.max_num_batched_tokens, limits.max_logits_rows, limits.max_steps_in_flight);
  TM_ASSERT(limits.num_stages > 0 && (limits.num_stages == 1 || limits.max_steps_in_flight >= limits.num_stages),
            "{} stages, {} steps in flight", limits.num_stages, limits.max_steps_in_flight);
  TM_ASSERT(options.long_prefill_token_threshold >= 0 && options.max_num_partial_prefills >= 0 &&
                options.min_pipeline_tokens > 0,
            "at most {} tokens of a prompt, {} prompts in progress, {} tokens in a pipeline's plan",
            options.long_prefill_token_threshold, options.max_num_partial_prefills, options.min_pipeline_tokens);
  appended_.resize(limits.kv_groups.size());
  in_flight_.resize(static_cast<size_t>(limits.max_steps_in_flight));
}

std::optional<FieldError> Scheduler::refusal(int64_t num_prompt_tokens, int64_t max_num_tokens,
                                             bool whole_prompt) const {
  const int64_t num_new_tokens = max_num_tokens > num_prompt_tokens ? 1 : 0;  // at least
  if (num_prompt_tokens + num_new_tokens > limits_.max_model_len) {
    return FieldError{"prompt",
                      fmt::format("prompt has {} tokens; at most {} fit in --max-model-len {}{}; shorten the "
                                  "prompt or raise --max-model-len",
                                  num_prompt_tokens, limits_.max_model_len - num_new_tokens, limits_.max_model_len,
                                  num_new_tokens > 0 ? " with one token to generate" : "")};
  }
  if (!options_.enable_chunked_prefill && num_prompt_tokens > limits_.max_num_batched_tokens) {
    return FieldError{"prompt",
                      fmt::format("prompt has {} tokens; without chunked prefill at most --max-num-batched-tokens "
                                  "{} are allowed; raise that or set --enable-chunked-prefill true",
                                  num_prompt_tokens, limits_.max_num_batched_tokens)};
  }
  const int64_t max_num_computed = std::max(max_num_tokens - 1, whole_prompt ? num_prompt_tokens : 0);
  for (int g = 0; g < blocks_.num_groups(); ++g) {
    // The least that lets it run alone: one token a step where chunks are allowed.
    const int64_t whole = options_.enable_chunked_prefill
                              ? 0
                              : blocks_.num_blocks_for(g, std::min(num_prompt_tokens, max_num_computed));
    const int64_t needed = std::max(whole, blocks_.num_live_blocks_for(g, max_num_computed, 1));
    if (needed <= blocks_.num_blocks(g)) continue;
    const bool prompt_fits =
        std::max(whole, blocks_.num_live_blocks_for(g, num_prompt_tokens, 1)) <= blocks_.num_blocks(g);
    return FieldError{
        prompt_fits ? "max_tokens" : "prompt",
        fmt::format("prompt of {} tokens and up to {} new ones need {} KV blocks of {} tokens, there are {}; "
                    "{} or give the KV cache more memory (--gpu-memory-utilization, "
                    "--kv-cache-memory-bytes)",
                    num_prompt_tokens, max_num_tokens - num_prompt_tokens, needed,
                    limits_.kv_groups[static_cast<size_t>(g)].block_size, blocks_.num_blocks(g),
                    prompt_fits ? "lower max_tokens" : "shorten the prompt")};
  }
  return std::nullopt;
}

bool Scheduler::schedule(StepPlan& plan, bool admit) {
  TM_ASSERT(num_steps_in_flight() < limits_.max_steps_in_flight, "{} steps in flight", num_steps_in_flight());
  discard_finished();
  release_forks();
  begin(plan);
  const int64_t num_preemptions = stats_.num_preemptions;
  Budget budget = make_budget(choose_decodes());
  const int64_t prompt_share = budget.prompt_tokens;
  schedule_running(plan, budget, /*decodes=*/true);
  schedule_running(plan, budget, /*decodes=*/false);
  const bool opens = !closed_ && (admit || num_running_ == 0);
  if (opens && stats_.num_preemptions == num_preemptions) admit_waiting(plan, budget);
  plan.scheduled.resize(num_scheduled_);
  if (plan.scheduled.empty()) {
    TM_ASSERT(num_steps_in_flight() > 0 || num_running_ > 0 || num_waiting_ == 0 || closed_,
              "{} sequences wait and none can enter", num_waiting_);
    return false;
  }
  plan.shrunk.swap(shrunk_slots_);
  plan.finished.swap(finished_slots_);
  plan.preempted.swap(preempted_slots_);
  plan.step_id = next_step_id_++;
  micro_batches_.launched(prompt_share - budget.prompt_tokens);
  count_blocks();
  return true;
}

void Scheduler::begin(StepPlan& plan) {
  plan.dummy = false;
  plan.stop = false;
  plan.shrunk.clear();
  plan.finished.clear();
  plan.preempted.clear();
  clear_lists(plan.fresh_blocks, limits_.kv_groups.size());
  plan.copies.clear();
  plan.new_slots.clear();
  plan.grown.clear();
  num_scheduled_ = 0;
  admitted_.clear();
  step_entries(next_step_id_).clear();
}

void Scheduler::discard_finished() {
  std::erase_if(draining_, [](const auto& sequence) { return sequence->num_steps_in_flight_ == 0; });
  if (static_cast<int64_t>(running_.size()) == num_running_) return;
  for (std::unique_ptr<Sequence>& sequence : running_) {
    if (sequence->status_ == SequenceStatus::kFinished) discard(std::move(sequence));
  }
  std::erase(running_, nullptr);
}

void Scheduler::discard(std::unique_ptr<Sequence> sequence) {
  if (sequence->num_steps_in_flight_ > 0) draining_.push_back(std::move(sequence));
}

void Scheduler::schedule_running(StepPlan& plan, Budget& budget, bool decodes) {
  if (!decodes) num_partial_ = 0;
  for (size_t i = 0; i < running_.size() && budget.tokens > 0; ++i) {
    Sequence& sequence = *running_[i];
    const int64_t wanted = sequence.num_schedulable_tokens();
    if (wanted == 0 || (wanted == 1) != decodes || sequence.last_step_ == next_step_id_) continue;
    if (decodes && micro_batches_.is_pipeline() && sequence.turn_ != next_step_id_) continue;
    int64_t num_tokens = num_tokens_within(sequence, sequence.num_computed_tokens_, budget);
    if (num_tokens > 0) num_tokens = make_room(i, num_tokens);
    if (i == running_.size() || running_[i].get() != &sequence)
      return;  // it was the youngest, and those behind it have run
    if (num_tokens > 0) {
      for (std::vector<int32_t>& list : appended_) list.clear();
      schedule_tokens(sequence, num_tokens, appended_, plan, budget);
      if (!decodes) budget.prompt_tokens -= num_tokens;
      const bool grew = std::any_of(appended_.begin(), appended_.end(), [](const auto& list) { return !list.empty(); });
      if (grew) plan.grown.push_back({sequence.slot_, appended_});
    }
    if (sequence.num_schedulable_tokens() > 1) ++num_partial_;
  }
}

// How many of the tokens the blocks have room for, after preempting younger sequences that this plan does not compute.
// 0: the sequence waits for blocks that steps in flight or those already planned will give back, or is preempted
// itself.
int64_t Scheduler::make_room(size_t index, int64_t num_tokens) {
  Sequence& sequence = *running_[index];
  const int64_t start = sequence.num_computed_tokens_;
  if (blocks_.leave_window(sequence.blocks_, start, sequence.last_step_)) {
    ShrunkSlot& shrunk = shrunk_slots_.emplace_back(ShrunkSlot{sequence.slot_, {}});
    for (const int64_t first : sequence.blocks_.first_kept) shrunk.first.push_back(static_cast<int32_t>(first));
  }
  while (true) {
    const int64_t fitting = blocks_.num_tokens_that_fit(sequence.blocks_, start);
    if (fitting > 0) return std::min(fitting, num_tokens);
    if (blocks_.will_have_more(sequence.blocks_, start, 1)) return 0;
    const size_t victim = youngest_unscheduled();
    const bool is_decode = num_tokens == 1;
    const bool others_go_on = num_scheduled_ > 0 || (micro_batches_.is_pipeline() && num_steps_in_flight() > 0);
    if (!is_decode && others_go_on) return 0;
    preempt(victim);
    if (victim == index) return 0;
  }
}

size_t Scheduler::youngest_unscheduled() const {
  size_t index = running_.size() - 1;
  while (running_[index]->last_step_ == next_step_id_) --index;
  return index;
}

// A sequence that lacks a mean has read nothing from the cache and starts from the front again after a preemption, so
// every position of its prompt passes here once.
void Scheduler::plan_hidden(const Sequence& sequence, ScheduledSlot& slot) {
  const HiddenStates lacking = sequence.lacking_hidden();
  const int64_t end = std::min(slot.start + slot.num_tokens, sequence.num_prompt_tokens_);
  const int64_t last = sequence.num_prompt_tokens_ - 1;
  const int64_t begin = lacking == HiddenStates::kLast ? std::max(slot.start, last) : slot.start;
  slot.hidden_begin = slot.num_hidden = 0;
  slot.hidden_ends = false;
  if (lacking == HiddenStates::kNone || begin >= end) return;
  slot.hidden_begin = static_cast<int32_t>(begin - slot.start);
  slot.num_hidden = static_cast<int32_t>(end - begin);
  slot.hidden_ends = end == sequence.num_prompt_tokens_;
}

// Positions computed again, after a preemption, keep the scores they have.
void Scheduler::plan_scores(Sequence& sequence, ScheduledSlot& slot, Budget& budget) {
  slot.scored_begin = slot.num_scored = 0;
  slot.scored_lists.clear();
  if (!sequence.is_prompt_scored()) return;
  const int64_t begin = std::max(slot.start, sequence.num_scores_planned_);
  const int64_t end = std::min(slot.start + slot.num_tokens, sequence.num_prompt_tokens_ - 1);
  if (end <= begin) return;
  slot.scored_begin = static_cast<int32_t>(begin - slot.start);
  slot.num_scored = static_cast<int32_t>(end - begin);
  sequence.num_scores_planned_ = end;
  budget.scored_rows -= (end - begin) * sequence.num_score_rows();
  const PromptLogprobIds& lists = sequence.sampling_.params->prompt_logprob_ids;
  const int64_t from = std::max(begin, lists.start);
  if (lists.width == 0 || from >= end) return;
  slot.scored_lists.assign(static_cast<size_t>((from - begin) * lists.width), -1);  // none before start
  const auto first = lists.ids.begin() + (from - lists.start) * lists.width;
  slot.scored_lists.insert(slot.scored_lists.end(), first, first + (end - from) * lists.width);
}

void Scheduler::schedule_tokens(Sequence& sequence, int64_t num_tokens, BlockTables& appended, StepPlan& plan,
                                Budget& budget) {
  const int64_t start = sequence.num_computed_tokens_;
  const int64_t end = start + num_tokens;
  const bool wants_logits = end == sequence.num_tokens() && end < sequence.max_num_tokens_;
  const bool last_sampled =
      !micro_batches_.is_pipeline() && num_tokens == 1 && start == sequence.last_sampled_position_;
  TM_ASSERT(last_sampled || end <= sequence.num_known_tokens(), "positions {} to {}, {} known", start, end,
            sequence.num_known_tokens());
  const bool grown = blocks_.grow(sequence.blocks_, end, appended, plan.fresh_blocks);
  TM_ASSERT(grown, "the blocks for positions {} to {} are not free", start, end);

  if (num_scheduled_ == plan.scheduled.size()) plan.scheduled.emplace_back();
  ScheduledSlot& slot = plan.scheduled[num_scheduled_++];
  slot.slot = sequence.slot_;
  slot.start = start;
  slot.num_tokens = static_cast<int32_t>(num_tokens);
  slot.source = last_sampled ? TokenSource::kLastSampled : TokenSource::kLiteral;
  slot.logits_rows.clear();
  slot.constraints.clear();
  if (wants_logits) {
    slot.logits_rows.push_back(static_cast<int32_t>(num_tokens - 1));
    if (sequence.sampling_.constraints != nullptr) {
      sequence.sampling_.constraints->next(
          end - sequence.num_prompt_tokens_,
          std::span(sequence.token_ids_).subspan(static_cast<size_t>(sequence.num_prompt_tokens_)),
          slot.constraints.emplace_back());
    }
  }
  plan_hidden(sequence, slot);
  plan_scores(sequence, slot, budget);

  count_tokens(sequence, start, end);
  sequence.num_computed_tokens_ = end;
  blocks_.register_computed(sequence.blocks_, end, next_step_id_);
  if (end >= sequence.num_prompt_tokens_ && sequence.prompt_step_ == 0) sequence.prompt_step_ = next_step_id_;
  if (wants_logits) {
    sequence.last_sampled_position_ = end;
    ++sequence.num_pending_tokens_;
    --budget.logits_rows;
  }
  budget.tokens -= num_tokens;
  ++sequence.num_steps_in_flight_;
  sequence.last_step_ = next_step_id_;
  step_entries(next_step_id_).push_back({&sequence, sequence.slot_, sequence.epoch_, wants_logits, slot.num_scored,
                                            slot.brings_results()});
}

// The tokens [start, end) are computed; those before start are there, whoever computed them.
void Scheduler::count_tokens(Sequence& sequence, int64_t start, int64_t end) {
  const int64_t num_prompt_tokens = sequence.num_prompt_tokens_;
  const int64_t covered = std::min(end, num_prompt_tokens);
  if (sequence.options_.sample_index == 0 && covered > sequence.num_prompt_tokens_counted_) {
    stats_.num_prompt_tokens += covered - sequence.num_prompt_tokens_counted_;
    sequence.num_prompt_tokens_counted_ = covered;
  }
  stats_.num_computed_prompt_tokens += std::max<int64_t>(0, covered - start);
  stats_.num_recomputed_tokens += std::max<int64_t>(0, std::min(end, sequence.num_ever_computed_) - start);
  sequence.num_ever_computed_ = std::max(sequence.num_ever_computed_, end);
}

void Scheduler::count_blocks() {
  int64_t num_empty = 0;
  for (const std::unique_ptr<Sequence>& sequence : running_) {
    for (size_t g = 0; g < limits_.kv_groups.size(); ++g) {
      const auto held = static_cast<int64_t>(sequence->blocks_.tables[g].size()) * limits_.kv_groups[g].block_size;
      num_empty += std::max<int64_t>(0, held - sequence->num_computed_tokens_);
    }
  }
  const auto allocated = static_cast<double>(std::max<int64_t>(1, blocks_.num_allocated_slots()));
  stats_.sum_kv_waste += static_cast<double>(num_empty) / allocated;
  stats_.sum_kv_shared_blocks += blocks_.num_shared_blocks();
}

std::span<const SequenceUpdate> Scheduler::update(const StepResult& result) {
  TM_ASSERT(num_steps_in_flight() > 0 && result.step_id == oldest_step_id_, "result of step {}, oldest in flight {}",
            result.step_id, oldest_step_id_);
  updates_.clear();
  size_t next = 0;
  for (const Entry& entry : step_entries(oldest_step_id_)) {
    Sequence& sequence = *entry.sequence;
    --sequence.num_steps_in_flight_;
    const StepResult::Slot* got = nullptr;
    if (entry.brings_results) {
      TM_ASSERT(next < result.slots.size() && result.slots[next].slot == entry.slot &&
                    result.slots[next].tokens.size() == (entry.wants_logits ? 1 : 0) &&
                    result.slots[next].scored.size() == static_cast<size_t>(entry.num_scored),
                "step {} does not bring what slot {} was scheduled for", result.step_id, entry.slot);
      got = &result.slots[next++];
    }
    if (got == nullptr || sequence.status_ == SequenceStatus::kFinished || entry.epoch != sequence.epoch_) continue;
    sequence.num_scores_collected_ += entry.num_scored;
    if (entry.wants_logits) take_sample(sequence, got->tokens.front());
    if (!got->hidden.empty()) sequence.is_hidden_collected_ = true;
    updates_.push_back({&sequence, got->tokens, got->scored, got->listed, got->hidden});
  }
  TM_ASSERT(next == result.slots.size(), "step {} brings tokens of {} slots, {} were asked for", result.step_id,
            result.slots.size(), next);
  blocks_.collected(oldest_step_id_++);
  if (num_steps_in_flight() == 0) micro_batches_.drained();
  return updates_;
}

void Scheduler::take_sample(Sequence& sequence, const SampledToken& token) {
  --sequence.num_pending_tokens_;
  sequence.token_ids_.push_back(token.token_id);
  if (token.status != SampleStatus::kFine) return;  // its owner will end it
  blocks_.follow(sequence.blocks_, sequence.options_.cache_identity, sequence.token_ids_);
  blocks_.register_computed(sequence.blocks_, sequence.num_computed_tokens_, next_step_id_ - 1);
}

void Scheduler::finish(Sequence& sequence, bool keep_cached) {
  TM_ASSERT(sequence.status_ != SequenceStatus::kFinished);
  if (!keep_cached) blocks_.forget(sequence.blocks_);
  if (sequence.status_ == SequenceStatus::kRunning) {
    --num_running_;
    free_slots_.give_back(sequence.slot_);
    finished_slots_.push_back(sequence.slot_);
    const bool generates = sequence.max_num_tokens_ > sequence.num_prompt_tokens_;
    if (generates) admission_.lengths().add(sequence.num_generated_tokens());
  } else {
    count_waiting(sequence, -1);
  }
  release_forks_of(sequence);  // they want its blocks kept
  blocks_.release(sequence.blocks_, sequence.last_step_);
  blocks_.leave(sequence.blocks_);
  if (sequence.first_sample_ != nullptr && *sequence.first_sample_ == &sequence) *sequence.first_sample_ = nullptr;
  sequence.status_ = SequenceStatus::kFinished;
}

// A sample behind the first shares the prompt, as a rule.
void Scheduler::count_waiting(const Sequence& sequence, int sign) {
  num_waiting_ += sign;
  num_waiting_tokens_ += sign * (sequence.sample_index() == 0 ? sequence.num_known_tokens() : 1);
}

void Scheduler::rewind(Sequence& sequence, int64_t num_tokens) {
  TM_ASSERT(sequence.status_ == SequenceStatus::kRunning);
  TM_ASSERT(num_tokens >= 0 && num_tokens <= sequence.num_generated_tokens(), "rewind by {} of {} generated tokens",
            num_tokens, sequence.num_generated_tokens());
  sequence.token_ids_.resize(sequence.token_ids_.size() - static_cast<size_t>(num_tokens));
  sequence.num_pending_tokens_ = 0;
  sequence.num_computed_tokens_ = std::min(sequence.num_computed_tokens_, sequence.num_known_tokens() - 1);
  sequence.num_scores_planned_ = sequence.num_scores_collected_;
  sequence.last_sampled_position_ = -1;
  ++sequence.epoch_;
  // Half of a mean is on the runner, which knows no way back.
  const bool may_stay = sequence.lacking_hidden() != HiddenStates::kMean;
  if (may_stay && blocks_.rewind(sequence.blocks_, sequence.num_known_tokens(), sequence.num_computed_tokens_)) return;
  const auto at = std::find_if(running_.begin(), running_.end(), [&](const auto& s) { return s.get() == &sequence; });
  preempt(static_cast<size_t>(at - running_.begin()));
}

void Scheduler::audit() const {
  std::vector<const SequenceBlocks*> running;
  for (const std::unique_ptr<Sequence>& sequence : running_) {
    if (sequence->status_ == SequenceStatus::kRunning) running.push_back(&sequence->blocks_);
  }
  blocks_.audit(running, num_waiting_ == 0);
}

std::vector<Scheduler::Entry>& Scheduler::step_entries(uint64_t step_id) {
  return in_flight_[static_cast<size_t>(step_id % in_flight_.size())];
}

}  // namespace tokenmill
