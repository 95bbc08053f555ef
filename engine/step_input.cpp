#include "engine/step_input.h"

#include <algorithm>

#include "engine/carver.h"
#include "kernels/core/check.h"

namespace tokenmill {
namespace {

/// LogitsRows::shortlist of a step.
int64_t shortlist_of(const StepPlan& plan, const std::vector<SlotState>& slots) {
  int64_t most = 0;
  for (const ScheduledSlot& s : plan.scheduled) {
    const int64_t of_slot = slots[s.slot].shortlist;
    for (size_t i = 0; i < s.logits_rows.size(); ++i) {
      const bool forced = !s.constraints.empty() && s.constraints[i].forced_token_id >= 0;
      if (of_slot == 0 && !forced) return 0;
      most = std::max<int64_t>(most, forced ? 1 : of_slot);
    }
  }
  return most;
}

}  // namespace

StepInput::Layout::Layout(const RunnerLimits& limits) {
  const auto field = [&](DType dtype, int64_t count) {
    const Field out{num_bytes, dtype};
    num_bytes += carved_bytes(count * dtype_size(dtype));
    return out;
  };
  const int64_t tokens = limits.max_num_batched_tokens, seqs = limits.max_num_seqs;
  const int64_t rows = limits.max_logits_rows, scored = limits.max_scored_rows;
  token_ids = field(DType::kI32, tokens);
  positions = field(DType::kI64, tokens);
  cu_seqlens = field(DType::kI32, seqs + 1);
  seq_lens = field(DType::kI64, seqs);
  row_tokens = field(DType::kI32, rows);
  row_slots = field(DType::kI32, rows);
  forced_ids = field(DType::kI32, rows);
  masked_offsets = field(DType::kI32, rows + 1);
  num_logprobs = field(DType::kI32, rows);
  listed_slots = field(DType::kI32, rows);
  for (size_t g = 0; g < limits.kv_groups.size(); ++g) slot_mappings.push_back(field(DType::kI64, tokens));
  masked_ids = field(DType::kI32, rows * kMaxMaskedTokenIds);
  hidden_tokens = field(DType::kI32, limits.max_hidden_rows);
  scored_tokens = field(DType::kI32, scored);
  scored_ids = field(DType::kI32, scored);
  scored_num_logprobs = field(DType::kI32, scored);
  scored_listed_slots = field(DType::kI32, scored);
  scored_lists = field(DType::kI32, scored * limits.max_logprobs);
  for (const KvSpec& spec : limits.kv_groups) {
    max_blocks.push_back((limits.max_model_len + spec.block_size - 1) / spec.block_size);
    block_tables.push_back(field(DType::kI32, seqs * max_blocks.back()));
  }
}

int64_t StepInput::device_bytes(const RunnerLimits& limits) { return Layout(limits).num_bytes; }

StepInput::StepInput(Ops& ops, const RunnerLimits& limits)
    : ops_(ops),
      limits_(limits),
      layout_(limits),
      device_(ops.memory().allocate(layout_.num_bytes)) {
  for (int i = 0; i < limits.max_steps_in_flight; ++i)
    host_.push_back(ops.memory().allocate_host(layout_.num_bytes));
}

template <typename T>
T* StepInput::host(const Field& field) const {
  return reinterpret_cast<T*>(static_cast<char*>(filled_->data()) + field.offset);
}

TensorView StepInput::device(const Field& field, std::initializer_list<int64_t> shape, int64_t row_stride) const {
  return TensorView(static_cast<char*>(device_.data()) + field.offset, field.dtype, shape,
                    device_.device().kind == DeviceKind::kCpu, row_stride);
}

void StepInput::send(const Field& field, int64_t count, int64_t begin) {
  if (count == 0) return;
  const int64_t at = begin * dtype_size(field.dtype);
  pieces_.push_back({static_cast<char*>(device_.data()) + field.offset + at, host<char>(field) + at,
                     count * dtype_size(field.dtype)});
}

void StepInput::send_sizes(const StepSizes& sizes, int64_t num_masked) {
  const auto [tokens, seqs, rows] = sizes;
  send(layout_.token_ids, tokens);
  send(layout_.positions, tokens);
  for (const Field& mapping : layout_.slot_mappings) send(mapping, tokens);
  send(layout_.cu_seqlens, seqs + 1);
  send(layout_.seq_lens, seqs);
  send(layout_.row_tokens, rows);
  send(layout_.row_slots, rows);
  send(layout_.forced_ids, rows);
  send(layout_.masked_offsets, rows + 1);
  send(layout_.masked_ids, num_masked);
}

void StepInput::flatten(const StepPlan& plan, const std::vector<SlotState>& slots) {
  auto* ids = host<int32_t>(layout_.token_ids);
  auto* positions = host<int64_t>(layout_.positions);
  auto* cu_seqlens = host<int32_t>(layout_.cu_seqlens);
  auto* seq_lens = host<int64_t>(layout_.seq_lens);
  int32_t token = 0, sequence = 0;
  for (const ScheduledSlot& s : plan.scheduled) {
    const SlotState& slot = slots[s.slot];
    cu_seqlens[sequence] = token;
    seq_lens[sequence++] = s.start + s.num_tokens;
    if (s.source == TokenSource::kLastSampled) {
      TM_ASSERT(s.num_tokens == 1);
      ids[token] = -1 - s.slot;
    } else {
      TM_ASSERT(s.start + s.num_tokens <= static_cast<int64_t>(slot.token_ids.size()),
                "slot {} has {} tokens, step {} wants [{}, {})", s.slot, slot.token_ids.size(), plan.step_id, s.start,
                s.start + s.num_tokens);
      std::copy_n(slot.token_ids.begin() + s.start, s.num_tokens, ids + token);
    }
    for (int32_t i = 0; i < s.num_tokens; ++i) positions[token++] = s.start + i;
  }
  cu_seqlens[sequence] = token;
}

/// Returns the number of masked ids.
int64_t StepInput::fill_rows(const StepPlan& plan, const std::vector<SlotState>& slots) {
  auto* row_tokens = host<int32_t>(layout_.row_tokens);
  auto* row_slots = host<int32_t>(layout_.row_slots);
  auto* forced_ids = host<int32_t>(layout_.forced_ids);
  auto* masked_offsets = host<int32_t>(layout_.masked_offsets);
  auto* masked_ids = host<int32_t>(layout_.masked_ids);
  auto* num_logprobs = host<int32_t>(layout_.num_logprobs);
  auto* listed_slots = host<int32_t>(layout_.listed_slots);
  int32_t token = 0, row = 0, num_masked = 0;
  for (const ScheduledSlot& s : plan.scheduled) {
    const SlotState& slot = slots[s.slot];
    for (size_t i = 0; i < s.logits_rows.size(); ++i, ++row) {
      row_tokens[row] = token + s.logits_rows[i];
      row_slots[row] = s.slot;
      num_logprobs[row] = slot.num_logprobs;
      listed_slots[row] = slot.lists_logprobs ? s.slot : -1;
      forced_ids[row] = -1;
      masked_offsets[row] = num_masked;
      if (s.constraints.empty()) continue;
      const StepConstraints& constraints = s.constraints[i];
      TM_ASSERT(static_cast<int64_t>(constraints.masked_token_ids.size()) <= kMaxMaskedTokenIds);
      forced_ids[row] = constraints.forced_token_id;
      for (const int32_t id : constraints.masked_token_ids) masked_ids[num_masked++] = id;
    }
    token += s.num_tokens;
  }
  masked_offsets[row] = num_masked;
  return num_masked;
}

void StepInput::fill_hidden(const StepPlan& plan) {
  auto* tokens = host<int32_t>(layout_.hidden_tokens);
  int32_t token = 0, row = 0;
  for (const ScheduledSlot& s : plan.scheduled) {
    TM_ASSERT(s.hidden_begin + s.num_hidden <= s.num_tokens, "slot {} brings hidden states [{}, +{}) of {} tokens",
              s.slot, s.hidden_begin, s.num_hidden, s.num_tokens);
    for (int32_t i = 0; i < s.num_hidden; ++i) tokens[row++] = token + s.hidden_begin + i;
    token += s.num_tokens;
  }
  send(layout_.hidden_tokens, row);
  num_hidden_ = row;
}

void StepInput::fill_scored(const StepPlan& plan, const std::vector<SlotState>& slots) {
  auto* tokens = host<int32_t>(layout_.scored_tokens);
  auto* ids = host<int32_t>(layout_.scored_ids);
  auto* num_logprobs = host<int32_t>(layout_.scored_num_logprobs);
  auto* listed_slots = host<int32_t>(layout_.scored_listed_slots);
  int32_t token = 0, row = 0;
  for (const ScheduledSlot& s : plan.scheduled) {
    const SlotState& slot = slots[s.slot];
    const auto score = [&](int32_t i, int32_t count, int32_t listed) {
      TM_ASSERT(i < s.num_tokens && s.start + i + 1 < slot.num_prompt_tokens, "slot {} scores position {} of a prompt of {}",
                s.slot, s.start + i, slot.num_prompt_tokens);
      tokens[row] = token + i;
      ids[row] = slot.token_ids[s.start + i + 1];
      num_logprobs[row] = count;
      listed_slots[row] = listed;
      ++row;
    };
    const int32_t end = s.scored_begin + s.num_scored, width = static_cast<int32_t>(s.list_width());
    for (int32_t i = s.scored_begin; i < end && slot.num_prompt_logprobs >= 0; ++i)
      score(i, slot.num_prompt_logprobs, -1);
    for (int32_t i = s.scored_begin; i < end && width > 0; ++i) score(i, width, row);
    token += s.num_tokens;
  }
  for (const Field& field : {layout_.scored_tokens, layout_.scored_ids, layout_.scored_num_logprobs,
                             layout_.scored_listed_slots}) {
    send(field, row);
  }
}

/// The lists of scored rows that have one, in their rows of a table that is width wide.
void StepInput::fill_lists(const StepPlan& plan, const std::vector<SlotState>& slots, int64_t width) {
  auto* lists = host<int32_t>(layout_.scored_lists);
  int64_t row = 0;
  for (const ScheduledSlot& s : plan.scheduled) {
    if (slots[s.slot].num_prompt_logprobs >= 0) row += s.num_scored;
    const int64_t own_width = s.list_width();
    for (int64_t i = 0; i < s.num_scored && own_width > 0; ++i, ++row) {
      for (int64_t k = 0; k < own_width; ++k) lists[row * width + k] = std::max(0, s.scored_lists[i * own_width + k]);
    }
  }
  send(layout_.scored_lists, row * width);
}

void StepInput::fill_group(int group, const StepPlan& plan, const std::vector<SlotState>& slots) {
  const int64_t block_size = limits_.kv_groups[group].block_size, max_blocks = layout_.max_blocks[group];
  auto* mapping = host<int64_t>(layout_.slot_mappings[group]);
  auto* table = host<int32_t>(layout_.block_tables[group]);
  int64_t token = 0, sequence = 0;
  for (const ScheduledSlot& s : plan.scheduled) {
    const std::vector<int32_t>& blocks = slots[s.slot].block_ids[group];
    const int64_t end = s.start + s.num_tokens, used = (end + block_size - 1) / block_size;
    TM_ASSERT(used <= static_cast<int64_t>(blocks.size()), "slot {} has {} blocks, needs {}", s.slot, blocks.size(), used);
    const int64_t row = sequence++ * max_blocks;
    std::copy_n(blocks.begin(), used, table + row);
    send(layout_.block_tables[group], used, row);
    for (int64_t p = s.start; p < end; ++p) mapping[token++] = blocks[p / block_size] * block_size + p % block_size;
  }
}

int64_t StepInput::num_scored_rows(const ScheduledSlot& scheduled, const SlotState& slot) {
  return scheduled.num_scored * ((slot.num_prompt_logprobs >= 0 ? 1 : 0) + (scheduled.list_width() > 0 ? 1 : 0));
}

StepOutputShape StepInput::output_shape(const StepPlan& plan, const std::vector<SlotState>& slots) {
  StepOutputShape shape;
  for (const ScheduledSlot& s : plan.scheduled) {
    const SlotState& slot = slots[s.slot];
    shape.num_rows += static_cast<int64_t>(s.logits_rows.size());
    shape.num_scored += num_scored_rows(s, slot);
    if (!s.logits_rows.empty()) shape.num_logprobs = std::max<int64_t>(shape.num_logprobs, slot.num_logprobs);
    if (s.num_scored > 0) {
      shape.num_prompt_logprobs =
          std::max<int64_t>({shape.num_prompt_logprobs, slot.num_prompt_logprobs, s.list_width()});
      shape.list_width = std::max(shape.list_width, s.list_width());
    }
  }
  return shape;
}

StepSizes StepInput::sizes_of(const StepPlan& plan) {
  return {plan.num_tokens(), static_cast<int64_t>(plan.scheduled.size()), plan.num_logits_rows()};
}

void StepInput::pad(const StepPlan& plan, const StepSizes& sizes, int32_t num_masked) {
  const StepSizes used = sizes_of(plan);
  const auto fill = [&](const Field& field, int64_t from, int64_t to, auto value) {
    std::fill(host<decltype(value)>(field) + from, host<decltype(value)>(field) + to, value);
  };
  fill(layout_.token_ids, used.num_tokens, sizes.num_tokens, int32_t{0});
  fill(layout_.positions, used.num_tokens, sizes.num_tokens, int64_t{0});
  for (const Field& mapping : layout_.slot_mappings)
    fill(mapping, used.num_tokens, sizes.num_tokens, int64_t{-1});
  fill(layout_.cu_seqlens, used.num_sequences + 1, sizes.num_sequences + 1, static_cast<int32_t>(used.num_tokens));
  fill(layout_.seq_lens, used.num_sequences, sizes.num_sequences, int64_t{0});
  fill(layout_.row_tokens, used.num_rows, sizes.num_rows, int32_t{0});
  fill(layout_.row_slots, used.num_rows, sizes.num_rows, static_cast<int32_t>(padding_slot()));
  fill(layout_.forced_ids, used.num_rows, sizes.num_rows, int32_t{-1});
  fill(layout_.masked_offsets, used.num_rows + 1, sizes.num_rows + 1, num_masked);
}

StepTensors StepInput::views(const StepSizes& sizes) const {
  const auto [tokens, seqs, rows] = sizes;
  StepTensors step;
  step.token_ids = device(layout_.token_ids, {tokens});
  step.positions = device(layout_.positions, {tokens});
  step.cu_seqlens = device(layout_.cu_seqlens, {seqs + 1});
  step.seq_lens = device(layout_.seq_lens, {seqs});
  step.rows = {device(layout_.row_tokens, {rows}), device(layout_.row_slots, {rows}), device(layout_.forced_ids, {rows}),
               device(layout_.masked_offsets, {rows + 1}),
               device(layout_.masked_ids, {limits_.max_logits_rows * kMaxMaskedTokenIds})};
  step.scored_tokens = device(layout_.scored_tokens, {0});
  step.num_groups = static_cast<int>(limits_.kv_groups.size());
  for (size_t g = 0; g < limits_.kv_groups.size(); ++g) {
    step.groups[g].slot_mapping = device(layout_.slot_mappings[g], {tokens});
    step.groups[g].block_table = device(layout_.block_tables[g], {seqs, layout_.max_blocks[g]});
  }
  return step;
}

StepTensors StepInput::stage(const StepPlan& plan, const std::vector<SlotState>& slots, const StepSizes& sizes,
                             int flight) {
  const StepOutputShape shape = output_shape(plan, slots);
  TM_ASSERT(sizes.num_tokens <= limits_.max_num_batched_tokens && sizes.num_sequences <= limits_.max_num_seqs &&
                sizes.num_rows <= limits_.max_logits_rows && shape.num_scored <= limits_.max_scored_rows &&
                plan.num_hidden() <= limits_.max_hidden_rows,
            "step {}: {} tokens, {} sequences, {} logits rows, {} scored, {} hidden states exceed the limits",
            plan.step_id, sizes.num_tokens, sizes.num_sequences, sizes.num_rows, shape.num_scored, plan.num_hidden());
  filled_ = &host_.at(static_cast<size_t>(flight));
  pieces_.clear();
  flatten(plan, slots);
  const int64_t num_masked = fill_rows(plan, slots);
  for (size_t g = 0; g < limits_.kv_groups.size(); ++g) fill_group(static_cast<int>(g), plan, slots);
  pad(plan, sizes, static_cast<int32_t>(num_masked));
  send_sizes(sizes, num_masked);
  fill_hidden(plan);
  fill_scored(plan, slots);
  if (shape.list_width > 0) fill_lists(plan, slots, shape.list_width);
  if (shape.num_logprobs >= 0) {
    send(layout_.num_logprobs, shape.num_rows);
    send(layout_.listed_slots, shape.num_rows);
  }
  ops_.copy_pieces(pieces_);
  StepTensors step = views(sizes);
  step.rows.shortlist = shortlist_of(plan, slots);
  if (shape.num_logprobs >= 0) {
    step.sampled = {
        {}, device(layout_.num_logprobs, {sizes.num_rows}), device(layout_.listed_slots, {sizes.num_rows})};
  }
  step.scored_tokens = device(layout_.scored_tokens, {shape.num_scored});
  step.scored = {device(layout_.scored_ids, {shape.num_scored}), device(layout_.scored_num_logprobs, {shape.num_scored}),
                 device(layout_.scored_listed_slots, {shape.num_scored})};
  if (shape.list_width > 0) step.scored_lists = device(layout_.scored_lists, {shape.num_scored, shape.list_width});
  return step;
}

}  // namespace tokenmill
