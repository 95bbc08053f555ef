#include "engine/scheduler.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill {
namespace {

// Positions whose KV a sequence needs at its longest: its last token is never computed.
int64_t longest_kv(int64_t max_num_tokens) { return max_num_tokens - 1; }

void clear_lists(std::vector<std::vector<int32_t>>& lists, size_t num_groups) {
  lists.resize(num_groups);
  for (std::vector<int32_t>& list : lists) list.clear();
}

}  // namespace

Scheduler::Scheduler(const RunnerLimits& limits, const SchedulerOptions& options)
    : limits_(limits), options_(options), blocks_(limits.kv_groups, limits.num_blocks) {
  TM_ASSERT(limits.max_num_seqs > 0 && limits.max_num_batched_tokens > 0 && limits.max_logits_rows > 0 &&
                limits.max_steps_in_flight > 0,
            "{} slots, {} tokens, {} logits rows per step, {} steps in flight", limits.max_num_seqs,
            limits.max_num_batched_tokens, limits.max_logits_rows, limits.max_steps_in_flight);
  const auto num_groups = limits.kv_groups.size();
  reserved_blocks_.assign(num_groups, 0);
  appended_.resize(num_groups);
  in_flight_.resize(static_cast<size_t>(limits.max_steps_in_flight));
  for (int64_t slot = limits.max_num_seqs - 1; slot >= 0; --slot) free_slots_.push_back(static_cast<int32_t>(slot));
}

std::optional<FieldError> Scheduler::refusal(int64_t num_prompt_tokens, int64_t max_num_tokens) const {
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
  for (int g = 0; g < blocks_.num_groups(); ++g) {
    const int64_t needed = blocks_.num_blocks_for(g, longest_kv(max_num_tokens));
    if (needed <= blocks_.num_blocks(g)) continue;
    const bool prompt_fits = blocks_.num_blocks_for(g, num_prompt_tokens) <= blocks_.num_blocks(g);
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

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  TM_ASSERT(sequence->status() == SequenceStatus::kWaiting);
  TM_ASSERT(!refusal(sequence->num_prompt_tokens(), sequence->max_num_tokens()));
  sequence->block_tables_.resize(limits_.kv_groups.size());
  const int64_t expected_tokens = sequence->max_num_tokens();
  waiting_.push(std::move(sequence), expected_tokens);
}

bool Scheduler::schedule(StepPlan& plan) {
  TM_ASSERT(num_steps_in_flight() < limits_.max_steps_in_flight, "{} steps in flight", num_steps_in_flight());
  discard_finished();
  plan.dummy = false;
  plan.stop = false;
  plan.finished.clear();
  plan.preempted.clear();
  clear_lists(plan.fresh_blocks, limits_.kv_groups.size());
  plan.copies.clear();
  plan.new_slots.clear();
  plan.grown.clear();
  num_scheduled_ = 0;
  admitted_.clear();
  step_entries(next_step_id_).clear();

  Budget budget{limits_.max_num_batched_tokens, limits_.max_logits_rows, limits_.max_scored_rows};
  schedule_running(plan, budget);
  admit_waiting(plan, budget);
  plan.scheduled.resize(num_scheduled_);
  if (plan.scheduled.empty()) return false;
  plan.finished.swap(finished_slots_);
  plan.step_id = next_step_id_++;
  return true;
}

void Scheduler::discard_finished() {
  std::erase_if(draining_, [](const auto& sequence) { return sequence->num_steps_in_flight_ == 0; });
  if (static_cast<int64_t>(running_.size()) == num_running_) return;
  for (std::unique_ptr<Sequence>& sequence : running_) {
    if (sequence->status_ == SequenceStatus::kFinished && sequence->num_steps_in_flight_ > 0) {
      draining_.push_back(std::move(sequence));
    }
  }
  std::erase_if(running_, [](const auto& sequence) {
    return sequence == nullptr || sequence->status_ == SequenceStatus::kFinished;
  });
}

void Scheduler::schedule_running(StepPlan& plan, Budget& budget) {
  for (const std::unique_ptr<Sequence>& sequence : running_) {
    if (budget.tokens == 0) return;
    const int64_t num_tokens = num_tokens_within(*sequence, budget);
    if (num_tokens == 0) continue;
    for (std::vector<int32_t>& list : appended_) list.clear();
    schedule_tokens(*sequence, num_tokens, appended_, plan, budget);
    const bool grew = std::any_of(appended_.begin(), appended_.end(), [](const auto& list) { return !list.empty(); });
    if (grew) plan.grown.push_back({sequence->slot_, appended_});
  }
}

void Scheduler::admit_waiting(StepPlan& plan, Budget& budget) {
  while (!waiting_.empty() && !free_slots_.empty()) {
    Sequence& sequence = waiting_.front();
    const int64_t num_tokens = num_tokens_within(sequence, budget);
    if (num_tokens == 0) return;
    if (!options_.enable_chunked_prefill && !sequence.is_prompt_scored() &&
        num_tokens < sequence.num_schedulable_tokens()) {
      return;
    }
    if (!reserve(sequence)) return;
    sequence.status_ = SequenceStatus::kRunning;
    sequence.slot_ = free_slots_.back();
    free_slots_.pop_back();
    NewSlot& slot = plan.new_slots.emplace_back();
    slot.slot = sequence.slot_;
    slot.token_ids = sequence.token_ids_;
    slot.num_prompt_tokens = sequence.num_prompt_tokens_;
    slot.sampling = sequence.sampling_;
    slot.block_ids.resize(limits_.kv_groups.size());
    schedule_tokens(sequence, num_tokens, slot.block_ids, plan, budget);
    admitted_.push_back(&sequence);
    ++num_running_;
    running_.push_back(waiting_.pop());
  }
}

// What the step has room for. Without a logits row left, the token that would need one waits; so do positions that
// are to be scored.
int64_t Scheduler::num_tokens_within(const Sequence& sequence, const Budget& budget) const {
  const int64_t start = sequence.num_computed_tokens_;
  int64_t end = start + std::min(sequence.num_schedulable_tokens(), budget.tokens);
  if (sequence.is_prompt_scored()) {
    const int64_t last = std::max(start, sequence.num_scores_planned_) + budget.scored_rows;
    if (last < sequence.num_prompt_tokens_ - 1) end = std::min(end, last);
  }
  if (end > start && end == sequence.num_tokens() && budget.logits_rows == 0) --end;
  return end - start;
}

// Positions computed again, after a preemption, keep the scores they have.
void Scheduler::plan_scores(Sequence& sequence, ScheduledSlot& slot, Budget& budget) {
  slot.scored_begin = slot.num_scored = 0;
  if (!sequence.is_prompt_scored()) return;
  const int64_t begin = std::max(slot.start, sequence.num_scores_planned_);
  const int64_t end = std::min(slot.start + slot.num_tokens, sequence.num_prompt_tokens_ - 1);
  if (end <= begin) return;
  slot.scored_begin = static_cast<int32_t>(begin - slot.start);
  slot.num_scored = static_cast<int32_t>(end - begin);
  sequence.num_scores_planned_ = end;
  budget.scored_rows -= end - begin;
}

void Scheduler::schedule_tokens(Sequence& sequence, int64_t num_tokens, BlockTables& appended, StepPlan& plan,
                                Budget& budget) {
  const int64_t start = sequence.num_computed_tokens_;
  const int64_t end = start + num_tokens;
  const bool wants_logits = end == sequence.num_tokens();
  const bool last_sampled = num_tokens == 1 && start == sequence.last_sampled_position_;
  TM_ASSERT(last_sampled || end <= sequence.num_known_tokens(), "positions {} to {}, {} known", start, end,
            sequence.num_known_tokens());
  const bool grown = blocks_.grow(sequence.block_tables_, end, appended, plan.fresh_blocks);
  TM_ASSERT(grown, "the blocks reserved for a sequence at its admission are not free");

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
    if (sequence.constraints_ != nullptr) {
      sequence.constraints_->next(
          end - sequence.num_prompt_tokens_,
          std::span(sequence.token_ids_).subspan(static_cast<size_t>(sequence.num_prompt_tokens_)),
          slot.constraints.emplace_back());
    }
  }
  plan_scores(sequence, slot, budget);

  num_prompt_tokens_ += std::max<int64_t>(0, std::min(end, sequence.num_prompt_tokens_) - start);
  sequence.num_computed_tokens_ = end;
  if (wants_logits) {
    sequence.last_sampled_position_ = end;
    ++sequence.num_pending_tokens_;
    --budget.logits_rows;
  }
  budget.tokens -= num_tokens;
  ++sequence.num_steps_in_flight_;
  step_entries(next_step_id_).push_back({&sequence, sequence.slot_, sequence.epoch_, wants_logits, slot.num_scored});
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
    if (entry.wants_logits || entry.num_scored > 0) {
      TM_ASSERT(next < result.slots.size() && result.slots[next].slot == entry.slot &&
                    result.slots[next].tokens.size() == (entry.wants_logits ? 1 : 0) &&
                    result.slots[next].scored.size() == static_cast<size_t>(entry.num_scored),
                "step {} does not bring what slot {} was scheduled for", result.step_id, entry.slot);
      got = &result.slots[next++];
    }
    if (sequence.status_ == SequenceStatus::kFinished) {
      if (sequence.num_steps_in_flight_ == 0) release_blocks(sequence);
    } else if (got != nullptr && entry.epoch == sequence.epoch_) {
      sequence.num_scores_collected_ += entry.num_scored;
      if (entry.wants_logits) {
        --sequence.num_pending_tokens_;
        sequence.token_ids_.push_back(got->tokens.front().token_id);
      }
      updates_.push_back({&sequence, got->tokens, got->scored});
    }
  }
  TM_ASSERT(next == result.slots.size(), "step {} brings tokens of {} slots, {} were asked for", result.step_id,
            result.slots.size(), next);
  ++oldest_step_id_;
  return updates_;
}

void Scheduler::finish(Sequence& sequence) {
  TM_ASSERT(sequence.status_ == SequenceStatus::kRunning);
  sequence.status_ = SequenceStatus::kFinished;
  --num_running_;
  free_slots_.push_back(sequence.slot_);
  finished_slots_.push_back(sequence.slot_);
  if (sequence.num_steps_in_flight_ == 0) release_blocks(sequence);
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
}

bool Scheduler::reserve(const Sequence& sequence) {
  const int64_t positions = longest_kv(sequence.max_num_tokens_);
  for (int g = 0; g < blocks_.num_groups(); ++g) {
    const int64_t reserved = reserved_blocks_[static_cast<size_t>(g)];
    if (reserved + blocks_.num_blocks_for(g, positions) > blocks_.num_blocks(g)) return false;
  }
  for (int g = 0; g < blocks_.num_groups(); ++g) {
    reserved_blocks_[static_cast<size_t>(g)] += blocks_.num_blocks_for(g, positions);
  }
  return true;
}

void Scheduler::release_blocks(Sequence& sequence) {
  const int64_t positions = longest_kv(sequence.max_num_tokens_);
  for (int g = 0; g < blocks_.num_groups(); ++g) {
    reserved_blocks_[static_cast<size_t>(g)] -= blocks_.num_blocks_for(g, positions);
  }
  blocks_.release(sequence.block_tables_);
}

std::vector<Scheduler::Entry>& Scheduler::step_entries(uint64_t step_id) {
  return in_flight_[static_cast<size_t>(step_id % in_flight_.size())];
}

}  // namespace tokenmill
