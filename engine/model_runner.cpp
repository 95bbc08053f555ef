#include "engine/model_runner.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "engine/block_tables.h"
#include "engine/carver.h"
#include "kernels/core/clock.h"
#include "parallel/self_communicator.h"

namespace tokenmill {
namespace {

/// Of the hidden states that steps in flight have on their way to the next stage.
int64_t hand_over_bytes(const RunnerLimits& limits, const Decoder& model, DType dtype) {
  if (model.shard().is_last_stage()) return 0;
  const int64_t count = limits.max_num_batched_tokens * model.config().hidden_size;
  return limits.max_steps_in_flight * carved_bytes(count * dtype_size(dtype));
}

/// Of a step's hidden states on their way to the host.
int64_t hidden_bytes(const RunnerLimits& limits, const Decoder& model, DType dtype) {
  if (!model.shard().is_last_stage()) return 0;
  return limits.max_hidden_rows * model.config().hidden_size * dtype_size(dtype);
}

/// Only the last stage looks at logits.
int64_t num_adjusted_slots(const RunnerLimits& limits, const Decoder& model) {
  return model.shard().is_last_stage() ? std::min(limits.max_num_seqs, limits.max_num_adjusted) : 0;
}

/// Puts ids at positions [position, position + ids.size()) of a sequence.
void place_tokens(SlotState& slot, int64_t position, std::span<const int32_t> ids) {
  const auto end = static_cast<size_t>(position) + ids.size();
  if (slot.token_ids.size() < end) slot.token_ids.resize(end);
  std::copy(ids.begin(), ids.end(), slot.token_ids.begin() + position);
}

}  // namespace

ModelRunner::ModelRunner(Ops& ops, Decoder& model, DType dtype, const RunnerLimits& limits, const ReplicaGroups& groups)
    : ops_(ops),
      model_(model),
      limits_(limits),
      alone_(std::make_unique<parallel::SelfCommunicator>(ops.stream())),
      tp_(groups.tp != nullptr ? *groups.tp : *alone_),
      pp_(groups.pp != nullptr ? *groups.pp : *alone_),
      kv_(ops, limits.kv_groups, limits.num_blocks),
      activation_storage_(
          ops.memory().allocate(model.activation_bytes(dtype, limits.max_num_batched_tokens, limits.max_logits_rows))),
      hand_over_storage_(ops.memory().allocate(hand_over_bytes(limits, model, dtype))),
      activations_(
          model.make_activations(dtype, limits.max_num_batched_tokens, limits.max_logits_rows, activation_storage_)),
      tables_(ops, limits.max_num_seqs, num_adjusted_slots(limits, model), limits.vocab_size,
              limits.max_steps_in_flight),
      input_(ops, limits),
      output_(ops, limits),
      layer_graphs_(ops.stream(), tp_),
      head_graphs_(ops.stream(), tp_),
      slots_(limits.max_num_seqs),
      hidden_(limits.max_num_seqs) {
  TM_ASSERT(pp_.size() == limits.num_stages && pp_.size() == model.shard().grid.pp_size &&
                pp_.rank() == model.shard().pp_rank,
            "stage {} of {} runs a part for stage {} of {}, limits say {} stages", pp_.rank(), pp_.size(),
            model.shard().pp_rank, model.shard().grid.pp_size, limits.num_stages);
  Carver carver(hand_over_storage_.data(), ops.device().kind == DeviceKind::kCpu);
  for (int i = 0; i < limits.max_steps_in_flight; ++i) {
    Staging& staging = staging_.emplace_back(
        Staging{ops.memory().allocate_host(hidden_bytes(limits, model, dtype)), {}, {}});
    if (model.shard().is_last_stage())
      staging.hidden =
          TensorView(staging.hidden_storage.data(), dtype, {limits.max_hidden_rows, model.config().hidden_size});
    if (!model.shard().is_last_stage())
      staging.hand_over = carver.take(dtype, {limits.max_num_batched_tokens, model.config().hidden_size});
  }
  model_.bind(ops, kv_.pools(), tp_);
  ops.reserve(model.workspace(dtype, limits.kv_groups.front().block_size, limits.max_num_batched_tokens,
                              limits.max_logits_rows));
}

int64_t ModelRunner::staging_bytes(const RunnerLimits& limits, const Decoder& model, DType dtype, DeviceKind device) {
  const int64_t both_sides = StepInput::device_bytes(limits) + StepOutput::device_bytes(limits);
  const int64_t on_device =
      SlotTables::device_bytes(limits.max_num_seqs, num_adjusted_slots(limits, model), limits.vocab_size) + both_sides +
      hand_over_bytes(limits, model, dtype);
  if (device != DeviceKind::kCpu) return on_device;
  return on_device + limits.max_steps_in_flight * (SlotTables::host_bytes(limits.max_num_seqs) + both_sides +
                                                   hidden_bytes(limits, model, dtype));
}

void ModelRunner::record_steps(int64_t most) {
  TM_ASSERT(next_ticket_ == 1, "{} steps have been launched", next_ticket_ - 1);
  const SteadyClock clock;
  const double start_s = clock.now_s();
  const int64_t free_before = ops_.memory().free_bytes();
  const int64_t tokens = std::min(most, limits_.max_num_batched_tokens);
  const int64_t rows = std::min({most, limits_.max_num_seqs, limits_.max_num_batched_tokens});
  input_.stage({}, slots_, {tokens, std::min(tokens, limits_.max_num_seqs), rows});
  layer_graphs_.record(graph_sizes(tokens), [&](int64_t size) {
    run_layers(input_.views({size, std::min(size, limits_.max_num_seqs), 0}));
  });
  if (model_.shard().is_last_stage() && tp_.size() == 1) {
    head_graphs_.record(graph_sizes(rows), [&](int64_t size) {
      const StepTensors step = input_.views({limits_.max_num_batched_tokens, 0, size});
      model_.run_head(ops_, step, tables_.tables(), activations_, output_.device({.num_rows = size}));
    });
  }
  figures_.record_s = clock.now_s() - start_s;
  figures_.memory_bytes = free_before - ops_.memory().free_bytes();
}

StepGraphFigures ModelRunner::graph_figures() const {
  StepGraphFigures out = figures_;
  for (const StepGraphs::Graph& graph : layer_graphs_.graphs()) out.layers.push_back({graph.size, graph.num_steps});
  for (const StepGraphs::Graph& graph : head_graphs_.graphs()) out.heads.push_back({graph.size, graph.num_steps});
  return out;
}

void ModelRunner::enter(const NewSlot& fresh, int flight) {
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
          .has_penalties = sampling.has_penalties(),
          .shortlist = shortlist_capacity(sampling.temperature, sampling.min_p, sampling.top_k, sampling.top_p)};
  hidden_.at(fresh.slot) = {};
  tables_.set(fresh.slot, sampling, flight);
}

void ModelRunner::apply(const StepPlan& plan, int flight) {
  for (const ShrunkSlot& shrunk : plan.shrunk) {
    SlotState& slot = slots_.at(shrunk.slot);
    for (size_t g = 0; g < shrunk.first.size(); ++g)
      std::fill_n(slot.block_ids.at(g).begin(), shrunk.first[g], kNullBlock);
  }
  for (const auto* released : {&plan.finished, &plan.preempted}) {
    for (const int32_t slot : *released) slots_.at(slot) = {.occupant = slots_[slot].occupant};
  }
  for (const SampledTokens& tokens : plan.sampled) place_tokens(slots_.at(tokens.slot), tokens.position, tokens.token_ids);
  for (size_t g = 0; g < plan.fresh_blocks.size(); ++g) {
    ops_.zero_blocks(kv_.pool(static_cast<int>(g)), plan.fresh_blocks[g]);
  }
  for (const GroupCopies& copies : plan.copies) ops_.copy_blocks(kv_.pool(copies.group), copies.copies);
  for (const NewSlot& fresh : plan.new_slots) enter(fresh, flight);
  tables_.send();
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

void ModelRunner::run(const StepPlan& plan, int flight) {
  const StepOutputShape shape = StepInput::output_shape(plan, slots_);
  const bool is_last = model_.shard().is_last_stage();
  if (is_last) refresh_counts(plan);
  StepSizes sizes = StepInput::sizes_of(plan);
  StepGraphs::Graph* layers = layer_graphs_.find(sizes.num_tokens);
  const bool picks_only = shape.num_logprobs < 0 && shape.num_scored == 0 && plan.num_hidden() == 0;
  StepGraphs::Graph* head = picks_only ? head_graphs_.find(sizes.num_rows) : nullptr;
  if (layers != nullptr) sizes.num_tokens = layers->size;
  if (layers != nullptr) sizes.num_sequences = std::min(layers->size, limits_.max_num_seqs);
  if (head != nullptr) sizes.num_rows = head->size;
  const StepTensors step = input_.stage(plan, slots_, sizes, flight);
  Staging& staging = staging_[static_cast<size_t>(flight)];
  receive_hidden(plan.num_tokens());
  if (layers != nullptr) {
    layer_graphs_.replay(*layers);
  } else {
    ++figures_.num_eager_layers;
    run_layers(step);
  }
  if (!is_last) return hand_over(plan.num_tokens(), staging);
  if (head != nullptr) {
    head_graphs_.replay(*head);
  } else {
    figures_.num_eager_heads += shape.num_rows + shape.num_scored + plan.num_hidden() > 0 ? 1 : 0;
    HeadOutput out = output_.device(shape);
    out.hidden_tokens = input_.hidden_tokens();
    out.hidden = staging.hidden;
    model_.run_head(ops_, step, tables_.tables(), activations_, out);
  }
  output_.fetch(shape, flight);
}

void ModelRunner::receive_hidden(int64_t num_tokens) {
  const ModelShard& shard = model_.shard();
  if (shard.is_first_stage()) return;
  pp_.wait(pp_.recv(activations_.hidden.slice_rows(0, num_tokens), shard.pp_rank - 1));
}

void ModelRunner::run_layers(const StepTensors& step) {
  ops_.plan(step);
  model_.run_layers(ops_, step, tables_.tables(), activations_);
}

void ModelRunner::hand_over(int64_t num_tokens, Staging& staging) {
  const TensorView hidden = activations_.hidden.slice_rows(0, num_tokens);
  const TensorView sent = staging.hand_over.slice_rows(0, num_tokens);
  ops_.stream().copy(sent.data(), hidden.data(), hidden.num_bytes());
  staging.sent = pp_.send(sent, model_.shard().pp_rank + 1);
}

Ticket ModelRunner::launch(const StepPlan& plan) {
  TM_ASSERT(static_cast<int>(in_flight_.size()) < limits_.max_steps_in_flight);
  const OpTimes op_times_before = ops_.op_times();
  const int own = flight_of(next_ticket_);
  apply(plan, own);
  if (!plan.dummy && !plan.scheduled.empty()) run(plan, own);
  InFlight flight{next_ticket_++,         plan.step_id,   {}, StepInput::output_shape(plan, slots_),
                  ops_.stream().record(), op_times_before};
  if (ops_.stream().done(flight.event)) flight.op_times = ops_.op_times() - op_times_before;
  for (const ScheduledSlot& s : plan.scheduled) {
    if (!s.brings_results()) continue;
    const SlotState& slot = slots_.at(s.slot);
    Wanted& wanted = flight.wanted.emplace_back(
        Wanted{s.slot, slot.occupant, {}, {}, s.scored_lists, slot.num_logprobs, slot.num_prompt_logprobs, s.num_hidden,
               s.hidden_ends});
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
  for (size_t i = 0; i < tokens.size(); ++i) place_tokens(slot, wanted.positions[i], {&tokens[i].token_id, 1});
}

/// Reads the scores of a slot from scored_row on; returns the row behind them.
int64_t ModelRunner::take_scores(const Wanted& wanted, const InFlight& flight, int64_t scored_row,
                                 StepResult::Slot& filled) const {
  const auto score = [&](int32_t id, int64_t num_logprobs) {
    return output_.scored(flight.shape, flight_of(flight.ticket), scored_row++, id, num_logprobs);
  };
  if (wanted.scored_ids.empty()) return scored_row;
  if (wanted.num_prompt_logprobs >= 0) {
    for (const int32_t id : wanted.scored_ids)
      filled.scored.push_back(score(id, wanted.num_prompt_logprobs));
  }
  const size_t width = wanted.lists.size() / wanted.scored_ids.size();
  if (width == 0) return scored_row;
  filled.listed.assign(wanted.lists.size(), -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < wanted.scored_ids.size(); ++i) {
    SampledToken token = score(wanted.scored_ids[i], static_cast<int64_t>(width));
    for (size_t k = 0; k < token.top.size(); ++k) {
      if (wanted.lists[i * width + k] >= 0) filled.listed[i * width + k] = token.top[k].logprob;
    }
    token.top.clear();
    if (wanted.num_prompt_logprobs < 0) filled.scored.push_back(std::move(token));
  }
  return scored_row;
}

/// rows: those of the step that are the slot's. Steps are collected in order, so they come in order of position.
void ModelRunner::take_hidden(const Wanted& wanted, const TensorView& rows, StepResult::Slot& filled) {
  if (wanted.num_hidden == 0) return;
  const SlotState& slot = slots_.at(wanted.slot);
  if (!slot.used || slot.occupant != wanted.occupant) return;
  HiddenMean& mean = hidden_.at(wanted.slot);
  mean.add(rows);
  if (wanted.hidden_ends) filled.hidden = mean.take();
}

StepResult ModelRunner::collect(Ticket ticket) {
  TM_ASSERT(!in_flight_.empty() && in_flight_.front().ticket == ticket, "ticket {} is not the oldest", ticket);
  const InFlight flight = std::move(in_flight_.front());
  in_flight_.pop_front();
  ops_.stream().wait(flight.event);
  StepResult result{flight.step_id, {}, {}};
  result.op_times = flight.op_times ? *flight.op_times : ops_.op_times() - flight.op_times_before;
  Staging& staging = staging_[static_cast<size_t>(flight_of(ticket))];
  if (staging.sent != 0) pp_.wait(std::exchange(staging.sent, 0));
  if (!model_.shard().is_last_stage()) return result;
  int64_t row = 0, scored_row = 0, hidden_row = 0;
  for (const Wanted& wanted : flight.wanted) {
    StepResult::Slot& filled = result.slots.emplace_back(StepResult::Slot{wanted.slot, {}});
    for (size_t i = 0; i < wanted.positions.size(); ++i) {
      filled.tokens.push_back(output_.sampled(flight.shape, flight_of(ticket), row++, wanted.num_logprobs));
    }
    take_hidden(wanted, staging.hidden.slice_rows(hidden_row, wanted.num_hidden), filled);
    hidden_row += wanted.num_hidden;
    scored_row = take_scores(wanted, flight, scored_row, filled);
    keep(wanted, filled.tokens);
  }
  return result;
}

}  // namespace tokenmill
