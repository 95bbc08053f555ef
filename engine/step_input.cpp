#include "engine/step_input.h"

#include <algorithm>

namespace tokenmill {
namespace {
int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }
}  // namespace

StepInput::StepInput(Ops& ops, const RunnerLimits& limits) : ops_(ops), limits_(limits) {
  int64_t offset = 0;
  const auto field = [&](DType dtype, int64_t count) {
    const Field out{offset, dtype};
    offset += aligned(count * dtype_size(dtype));
    return out;
  };
  const int64_t tokens = limits.max_num_batched_tokens, seqs = limits.max_num_seqs;
  token_ids_ = field(DType::kI32, tokens);
  positions_ = field(DType::kI64, tokens);
  cu_seqlens_ = field(DType::kI32, seqs + 1);
  seq_lens_ = field(DType::kI64, seqs);
  logits_rows_ = field(DType::kI32, limits.max_logits_rows);
  row_slots_ = field(DType::kI32, limits.max_logits_rows);
  for (size_t g = 0; g < limits.kv_groups.size(); ++g) slot_mappings_.push_back(field(DType::kI64, tokens));
  small_bytes_ = offset;
  for (const KvSpec& spec : limits.kv_groups) {
    max_blocks_.push_back((limits.max_model_len + spec.block_size - 1) / spec.block_size);
    block_tables_.push_back(field(DType::kI32, seqs * max_blocks_.back()));
  }
  host_ = ops.memory().allocate_host(offset);
  device_ = ops.memory().allocate(offset);
}

template <typename T>
T* StepInput::host(const Field& field) const {
  return reinterpret_cast<T*>(static_cast<char*>(host_.data()) + field.offset);
}

TensorView StepInput::device(const Field& field, std::initializer_list<int64_t> shape, int64_t row_stride) const {
  return TensorView(static_cast<char*>(device_.data()) + field.offset, field.dtype, shape,
                    device_.device().kind == DeviceKind::kCpu, row_stride);
}

void StepInput::flatten(const StepPlan& plan, const std::vector<SlotState>& slots) {
  auto* ids = host<int32_t>(token_ids_);
  auto* positions = host<int64_t>(positions_);
  auto* cu_seqlens = host<int32_t>(cu_seqlens_);
  auto* seq_lens = host<int64_t>(seq_lens_);
  auto* rows = host<int32_t>(logits_rows_);
  auto* row_slots = host<int32_t>(row_slots_);
  int32_t token = 0, row = 0, sequence = 0;
  for (const ScheduledSlot& s : plan.scheduled) {
    const SlotState& slot = slots[s.slot];
    cu_seqlens[sequence] = token;
    seq_lens[sequence++] = s.start + s.num_tokens;
    for (const int32_t r : s.logits_rows) {
      rows[row] = token + r;
      row_slots[row++] = s.slot;
    }
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

void StepInput::fill_group(int group, const StepPlan& plan, const std::vector<SlotState>& slots) {
  const int64_t block_size = limits_.kv_groups[group].block_size;
  auto* mapping = host<int64_t>(slot_mappings_[group]);
  auto* table = host<int32_t>(block_tables_[group]);
  int64_t token = 0, sequence = 0;
  for (const ScheduledSlot& s : plan.scheduled) {
    const std::vector<int32_t>& blocks = slots[s.slot].block_ids[group];
    const int64_t end = s.start + s.num_tokens, used = (end + block_size - 1) / block_size;
    TM_ASSERT(used <= static_cast<int64_t>(blocks.size()), "slot {} has {} blocks, needs {}", s.slot, blocks.size(), used);
    int32_t* row = table + sequence * max_blocks_[group];
    std::copy_n(blocks.begin(), used, row);
    const int64_t at = block_tables_[group].offset + sequence++ * max_blocks_[group] * 4;
    ops_.stream().copy(static_cast<char*>(device_.data()) + at, row, used * 4);
    for (int64_t p = s.start; p < end; ++p) mapping[token++] = blocks[p / block_size] * block_size + p % block_size;
  }
}

StepTensors StepInput::stage(const StepPlan& plan, const std::vector<SlotState>& slots) {
  const int64_t tokens = plan.num_tokens(), rows = plan.num_logits_rows();
  const auto seqs = static_cast<int64_t>(plan.scheduled.size());
  TM_ASSERT(tokens <= limits_.max_num_batched_tokens && seqs <= limits_.max_num_seqs && rows <= limits_.max_logits_rows,
            "step {}: {} tokens, {} sequences, {} logits rows exceed the limits", plan.step_id, tokens, seqs, rows);
  flatten(plan, slots);
  const int num_groups = static_cast<int>(limits_.kv_groups.size());
  for (int g = 0; g < num_groups; ++g) fill_group(g, plan, slots);
  ops_.stream().copy(device_.data(), host_.data(), small_bytes_);
  StepTensors step;
  step.token_ids = device(token_ids_, {tokens});
  step.positions = device(positions_, {tokens});
  step.cu_seqlens = device(cu_seqlens_, {seqs + 1});
  step.seq_lens = device(seq_lens_, {seqs});
  step.logits_rows = device(logits_rows_, {rows});
  step.row_slots = device(row_slots_, {rows});
  step.num_groups = num_groups;
  for (int g = 0; g < num_groups; ++g) {
    step.groups[g].slot_mapping = device(slot_mappings_[g], {tokens});
    step.groups[g].block_table = device(block_tables_[g], {seqs, max_blocks_[g]});
  }
  return step;
}

namespace {
/// The six tables one after the other over base.
SamplingTables carve_tables(const Buffer& buffer, int64_t slots) {
  char* at = static_cast<char*>(buffer.data());
  const bool is_host = buffer.device().kind == DeviceKind::kCpu;
  const auto take = [&](DType dtype) {
    const TensorView view(at, dtype, {slots}, is_host);
    at += aligned(slots * dtype_size(dtype));
    return view;
  };
  SamplingTables t;
  t.temperature = take(DType::kF32);
  t.top_p = take(DType::kF32);
  t.min_p = take(DType::kF32);
  t.top_k = take(DType::kI32);
  t.key = take(DType::kI64);
  t.last_token = take(DType::kI32);
  return t;
}
}  // namespace

SlotTables::SlotTables(Ops& ops, int64_t max_num_seqs) : ops_(ops) {
  const int64_t bytes = 5 * aligned(max_num_seqs * 4) + aligned(max_num_seqs * 8);
  host_ = ops.memory().allocate_host(bytes);
  device_ = ops.memory().allocate(bytes);
  tables_ = carve_tables(device_, max_num_seqs);
  staging_ = carve_tables(host_, max_num_seqs);
}

void SlotTables::set(int32_t slot, const SlotSampling& sampling) {
  const auto put = [&](const TensorView& device, const TensorView& host, auto value) {
    auto* source = static_cast<decltype(value)*>(host.data()) + slot;
    *source = value;
    ops_.stream().copy(static_cast<decltype(value)*>(device.data()) + slot, source, sizeof(value));
  };
  put(tables_.temperature, staging_.temperature, sampling.temperature);
  put(tables_.top_p, staging_.top_p, sampling.top_p);
  put(tables_.min_p, staging_.min_p, sampling.min_p);
  put(tables_.top_k, staging_.top_k, sampling.top_k);
  put(tables_.key, staging_.key, static_cast<int64_t>(sampling.key));
}

}  // namespace tokenmill
