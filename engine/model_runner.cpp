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
      tables_(ops, limits.max_num_seqs),
      slots_(limits.max_num_seqs),
      output_(ops.memory().allocate_host(limits.max_logits_rows * 12)) {
  TM_ASSERT(limits.max_steps_in_flight == 1, "{} steps in flight; this runner's staging holds one",
            limits.max_steps_in_flight);
  model_.bind(ops, kv_.pools());
}

void ModelRunner::enter(const NewSlot& fresh) {
  SlotState& slot = slots_.at(fresh.slot);
  TM_ASSERT(!slot.used, "slot {} is in use", fresh.slot);
  TM_ASSERT(fresh.block_ids.size() == limits_.kv_groups.size());
  slot = {true, slot.occupant + 1, fresh.token_ids, fresh.block_ids};
  tables_.set(fresh.slot, fresh.sampling);
}

void ModelRunner::apply(const StepPlan& plan) {
  for (const ShrunkSlot& shrunk : plan.shrunk) {
    SlotState& slot = slots_.at(shrunk.slot);
    for (size_t g = 0; g < shrunk.first.size(); ++g) std::fill_n(slot.block_ids.at(g).begin(), shrunk.first[g], kNullBlock);
  }
  for (const auto* released : {&plan.finished, &plan.preempted}) {
    for (const int32_t slot : *released) slots_.at(slot) = {false, slots_[slot].occupant, {}, {}};
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

void ModelRunner::run(const StepPlan& plan) {
  const int64_t rows = plan.num_logits_rows();
  const StepTensors step = input_.stage(plan, slots_);
  ops_.plan(step);
  const Activations a = cut(activations_, plan.num_tokens(), rows);
  model_.forward(ops_, step, tables_.tables(), a);
  auto* out = static_cast<char*>(output_.data());
  ops_.stream().copy(out, a.picked.token_ids.data(), rows * 4);
  ops_.stream().copy(out + limits_.max_logits_rows * 4, a.picked.logprobs.data(), rows * 4);
  ops_.stream().copy(out + limits_.max_logits_rows * 8, a.picked.status.data(), rows * 4);
}

Ticket ModelRunner::launch(const StepPlan& plan) {
  TM_ASSERT(static_cast<int>(in_flight_.size()) < limits_.max_steps_in_flight);
  const OpTimes before = ops_.op_times();
  apply(plan);
  if (!plan.dummy && !plan.scheduled.empty()) run(plan);
  InFlight flight{next_ticket_++, plan.step_id, {}, ops_.stream().record(), before};
  for (const ScheduledSlot& s : plan.scheduled) {
    if (s.logits_rows.empty()) continue;
    Wanted& wanted = flight.wanted.emplace_back(Wanted{s.slot, slots_.at(s.slot).occupant, {}});
    for (const int32_t row : s.logits_rows) wanted.positions.push_back(s.start + row + 1);
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
  const char* out = static_cast<const char*>(output_.data());
  const auto* ids = reinterpret_cast<const int32_t*>(out);
  const auto* logprobs = reinterpret_cast<const float*>(out + limits_.max_logits_rows * 4);
  const auto* status = reinterpret_cast<const int32_t*>(out + limits_.max_logits_rows * 8);
  StepResult result{flight.step_id, {}, {}};
  int64_t row = 0;
  for (const Wanted& wanted : flight.wanted) {
    StepResult::Slot& filled = result.slots.emplace_back(StepResult::Slot{wanted.slot, {}});
    for (size_t i = 0; i < wanted.positions.size(); ++i, ++row) {
      filled.tokens.push_back({ids[row], logprobs[row], static_cast<SampleStatus>(status[row])});
    }
    keep(wanted, filled.tokens);
  }
  result.op_times = ops_.op_times() - flight.op_times_before;
  return result;
}

}  // namespace tokenmill
