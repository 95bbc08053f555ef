#include "engine/model_runner.h"

#include <algorithm>

#include "engine/block_tables.h"

namespace tokenmill {

ModelRunner::ModelRunner(Ops& ops, Decoder& model, DType dtype, const RunnerLimits& limits)
    : ops_(ops),
      model_(model),
      limits_(limits),
      kv_(ops, limits.kv_groups, limits.num_blocks),
      activation_storage_(
          ops.memory().allocate(model.activation_bytes(dtype, limits.max_num_batched_tokens, limits.max_logits_rows))),
      activations_(
          model.make_activations(dtype, limits.max_num_batched_tokens, limits.max_logits_rows, activation_storage_)),
      input_(ops, limits),
      tables_(ops, limits.max_num_seqs, limits.vocab_size),
      slots_(limits.max_num_seqs),
      output_(ops, limits) {
  TM_ASSERT(limits.max_steps_in_flight == 1, "{} steps in flight; this runner's staging holds one",
            limits.max_steps_in_flight);
  model_.bind(ops, kv_.pools());
}

int64_t ModelRunner::staging_bytes(const RunnerLimits& limits, DeviceKind device) {
  const int64_t both_sides = StepInput::device_bytes(limits) + StepOutput::device_bytes(limits);
  const int64_t on_device = SlotTables::device_bytes(limits.max_num_seqs, limits.vocab_size) + both_sides;
  if (device != DeviceKind::kCpu) return on_device;
  return on_device + SlotTables::host_bytes(limits.max_num_seqs) + both_sides;
}

void ModelRunner::enter(const NewSlot& fresh) {
  SlotState& slot = slots_.at(fresh.slot);
  TM_ASSERT(!slot.used, "slot {} is in use", fresh.slot);
  TM_ASSERT(fresh.block_ids.size() == limits_.kv_groups.size());
  const SlotSampling& sampling = fresh.sampling;
  slot = {.used = true,
          .occupant = slot.occupant + 1,
          .token_ids = fresh.token_ids,
          .block_ids = fresh.block_ids,
          .num_prompt_tokens = fresh.num_prompt_tokens,
          .num_logprobs = sampling.num_logprobs,
          .num_prompt_logprobs = sampling.num_prompt_logprobs,
          .lists_logprobs = !sampling.logprob_token_ids.empty(),
          .has_penalties = sampling.has_penalties()};
  tables_.set(fresh.slot, sampling);
}

void ModelRunner::apply(const StepPlan& plan) {
  for (const ShrunkSlot& shrunk : plan.shrunk) {
    SlotState& slot = slots_.at(shrunk.slot);
    for (size_t g = 0; g < shrunk.first.size(); ++g)
      std::fill_n(slot.block_ids.at(g).begin(), shrunk.first[g], kNullBlock);
  }
  for (const auto* released : {&plan.finished, &plan.preempted}) {
    for (const int32_t slot : *released) slots_.at(slot) = {.occupant = slots_[slot].occupant};
  }
  for (size_t g = 0; g < plan.fresh_blocks.size(); ++g) {
    ops_.zero_blocks(kv_.pool(static_cast<int>(g)), plan.fresh_blocks[g]);
  }
  for (const GroupCopies& copies : plan.copies) ops_.copy_blocks(kv_.pool(copies.group), copies.copies);
  for (const NewSlot& fresh : plan.new_slots) enter(fresh);
  for (const GrownSlot& grown : plan.grown) {
    SlotState& slot = slots_.at(grown.slot);
    for (size_t g = 0; g < grown.block_ids.size(); ++g) {
      slot.block_ids.at(g).insert(slot.block_ids[g].end(), grown.block_ids[g].begin(), grown.block_ids[g].end());
    }
  }
}

/// pick() goes on counting from what it has sampled itself; a sequence that is new in its slot, or has been rewound, is
/// counted from its tokens.
void ModelRunner::refresh_counts(const StepPlan& plan) {
  for (const ScheduledSlot& s : plan.scheduled) {
    SlotState& slot = slots_[s.slot];
    if (!slot.has_penalties) continue;
    for (const int32_t row : s.logits_rows) {
      const int64_t position = s.start + row + 1;  // of the token to be sampled
      if (slot.counted_end != position) {
        TM_ASSERT(position <= static_cast<int64_t>(slot.token_ids.size()), "slot {} has {} of {} tokens", s.slot,
                  slot.token_ids.size(), position);
        const auto tokens = std::span(slot.token_ids).first(static_cast<size_t>(position));
        tables_.count(s.slot, tokens, std::min(slot.num_prompt_tokens, position));
      }
      slot.counted_end = position + 1;
    }
  }
}

void ModelRunner::run(const StepPlan& plan) {
  const StepOutputShape shape = StepInput::output_shape(plan, slots_);
  refresh_counts(plan);
  const StepTensors step = input_.stage(plan, slots_);
  ops_.plan(step);
  model_.forward(ops_, step, tables_.tables(), activations_, output_.device(shape));
  output_.fetch(shape);
}

Ticket ModelRunner::launch(const StepPlan& plan) {
  TM_ASSERT(static_cast<int>(in_flight_.size()) < limits_.max_steps_in_flight);
  const OpTimes before = ops_.op_times();
  apply(plan);
  if (!plan.dummy && !plan.scheduled.empty()) run(plan);
  InFlight flight{next_ticket_++,         plan.step_id, {}, StepInput::output_shape(plan, slots_),
                  ops_.stream().record(), before};
  for (const ScheduledSlot& s : plan.scheduled) {
    if (s.logits_rows.empty() && s.num_scored == 0) continue;
    const SlotState& slot = slots_.at(s.slot);
    Wanted& wanted =
        flight.wanted.emplace_back(Wanted{s.slot, slot.occupant, {}, {}, slot.num_logprobs, slot.num_prompt_logprobs});
    for (const int32_t row : s.logits_rows) wanted.positions.push_back(s.start + row + 1);
    const auto first_scored = slot.token_ids.begin() + s.start + s.scored_begin + 1;
    if (s.num_scored > 0) wanted.scored_ids.assign(first_scored, first_scored + s.num_scored);
  }
  in_flight_.push_back(std::move(flight));
  return in_flight_.back().ticket;
}

/// By position: the sequence may have been rewound since, or have left its slot to another.
void ModelRunner::keep(const Wanted& wanted, const std::vector<SampledToken>& tokens) {
  SlotState& slot = slots_.at(wanted.slot);
  if (!slot.used || slot.occupant != wanted.occupant) return;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto position = static_cast<size_t>(wanted.positions[i]);
    if (slot.token_ids.size() <= position) slot.token_ids.resize(position + 1);
    slot.token_ids[position] = tokens[i].token_id;
  }
}

StepResult ModelRunner::collect(Ticket ticket) {
  TM_ASSERT(!in_flight_.empty() && in_flight_.front().ticket == ticket, "ticket {} is not the oldest", ticket);
  const InFlight flight = std::move(in_flight_.front());
  in_flight_.pop_front();
  ops_.stream().wait(flight.event);
  StepResult result{flight.step_id, {}, {}};
  int64_t row = 0, scored_row = 0;
  for (const Wanted& wanted : flight.wanted) {
    StepResult::Slot& filled = result.slots.emplace_back(StepResult::Slot{wanted.slot, {}});
    for (size_t i = 0; i < wanted.positions.size(); ++i) {
      filled.tokens.push_back(output_.sampled(flight.shape, row++, wanted.num_logprobs));
    }
    for (const int32_t id : wanted.scored_ids) {
      filled.scored.push_back(output_.scored(flight.shape, scored_row++, id, wanted.num_prompt_logprobs));
    }
    keep(wanted, filled.tokens);
  }
  result.op_times = ops_.op_times() - flight.op_times_before;
  return result;
}

}  // namespace tokenmill
