#include "engine/slot_tables.h"

#include <algorithm>
#include <limits>

#include "engine/carver.h"

namespace tokenmill {
namespace {

void carve_parameters(Carver& carver, int64_t slots, SamplingTables& t) {
  t.temperature = carver.take(DType::kF32, {slots});
  t.top_p = carver.take(DType::kF32, {slots});
  t.min_p = carver.take(DType::kF32, {slots});
  t.top_k = carver.take(DType::kI32, {slots});
  t.key = carver.take(DType::kI64, {slots});
  t.last_token = carver.take(DType::kI32, {slots});
  t.adjust = carver.take(DType::kI32, {slots});
  t.presence_penalty = carver.take(DType::kF32, {slots});
  t.frequency_penalty = carver.take(DType::kF32, {slots});
  t.repetition_penalty = carver.take(DType::kF32, {slots});
  t.listed_ids = carver.take(DType::kI32, {slots, kMaxLogprobTokenIds});
}

void carve_id_tables(Carver& carver, int64_t slots, int64_t vocab_size, SamplingTables& t) {
  t.counts = carver.take(DType::kI32, {slots, vocab_size});
  t.bias = carver.take(DType::kF32, {slots, vocab_size});
}

}  // namespace

int64_t SlotTables::device_bytes(int64_t max_num_seqs, int64_t num_adjusted, int64_t vocab_size) {
  Carver carver(nullptr, true);
  SamplingTables tables;
  carve_parameters(carver, max_num_seqs + 1, tables);
  carve_id_tables(carver, num_adjusted, vocab_size, tables);
  return carver.num_bytes();
}

int64_t SlotTables::host_bytes(int64_t max_num_seqs) {
  Carver carver(nullptr, true);
  SamplingTables tables;
  carve_parameters(carver, max_num_seqs + 1, tables);
  return carver.num_bytes();
}

SlotTables::SlotTables(Ops& ops, int64_t max_num_seqs, int64_t num_adjusted, int64_t vocab_size,
                       int max_steps_in_flight)
    : ops_(ops), staging_(static_cast<size_t>(max_steps_in_flight)) {
  const int64_t parameter_bytes = host_bytes(max_num_seqs);
  for (SamplingTables& staging : staging_) {
    Carver carver(host_.emplace_back(ops.memory().allocate_host(parameter_bytes)).data(), true);
    carve_parameters(carver, max_num_seqs + 1, staging);
  }
  device_ = ops.memory().allocate(parameter_bytes);
  id_tables_ = ops.memory().allocate(device_bytes(max_num_seqs, num_adjusted, vocab_size) - parameter_bytes);
  const bool is_host = ops.device().kind == DeviceKind::kCpu;
  Carver parameters(device_.data(), is_host), id_tables(id_tables_.data(), is_host);
  carve_parameters(parameters, max_num_seqs + 1, tables_);
  carve_id_tables(id_tables, num_adjusted, vocab_size, tables_);
}

void SlotTables::set(int32_t slot, const SlotSampling& sampling, int flight) {
  const SamplingTables& staging = staging_.at(static_cast<size_t>(flight));
  const auto put = [&](const TensorView& device, const TensorView& host, auto value) {
    auto* source = static_cast<decltype(value)*>(host.data()) + slot;
    *source = value;
    pieces_.push_back({static_cast<decltype(value)*>(device.data()) + slot, source, sizeof(value)});
  };
  put(tables_.temperature, staging.temperature, sampling.temperature);
  put(tables_.top_p, staging.top_p, sampling.top_p);
  put(tables_.min_p, staging.min_p, sampling.min_p);
  put(tables_.top_k, staging.top_k, sampling.top_k);
  put(tables_.key, staging.key, static_cast<int64_t>(sampling.key));
  put(tables_.presence_penalty, staging.presence_penalty, sampling.presence_penalty);
  put(tables_.frequency_penalty, staging.frequency_penalty, sampling.frequency_penalty);
  put(tables_.repetition_penalty, staging.repetition_penalty, sampling.repetition_penalty);
  put(tables_.adjust, staging.adjust,
      (sampling.has_bias() ? kAdjustBias : 0) | (sampling.has_penalties() ? kAdjustCounts : 0));
  if (!sampling.logprob_token_ids.empty()) {
    int32_t* source = staging.listed_ids.row<int32_t>(slot);
    std::copy(sampling.logprob_token_ids.begin(), sampling.logprob_token_ids.end(), source);
    pieces_.push_back({static_cast<int32_t*>(tables_.listed_ids.data()) + slot * kMaxLogprobTokenIds, source,
                       static_cast<int64_t>(sampling.logprob_token_ids.size()) * 4});
  }
  if (!sampling.has_bias() || tables_.bias.rows() == 0) return;
  bias_ids_.clear();
  bias_values_.clear();
  for (const TokenBias& entry : sampling.bias) {
    bias_ids_.push_back(entry.token_id);
    bias_values_.push_back(entry.bias);
  }
  ops_.set_bias(tables_, slot, sampling.only_biased ? -std::numeric_limits<float>::infinity() : 0.0f, bias_ids_,
                bias_values_);
}

void SlotTables::send() {
  ops_.copy_pieces(pieces_);
  pieces_.clear();
}

void SlotTables::count(int32_t slot, std::span<const int32_t> token_ids, int64_t num_prompt_tokens) {
  ops_.count_tokens(tables_, slot, token_ids, num_prompt_tokens);
}

}  // namespace tokenmill
