#include "tests/support/model_harness.h"

#include <algorithm>
#include <numeric>

#include "engine/models/loader.h"

namespace tokenmill::test {

ModelHarness::ModelHarness(Ops& ops, const std::string& path, DType dtype, int64_t max_model_len, int64_t max_tokens)
    : ops_(ops), alone_(ops.stream()), checkpoint_(std::make_unique<Checkpoint>(path)), slots_(1) {
  builder_ = std::make_unique<WeightBuilder>(ops, checkpoint_->weights(), dtype);
  decoder_ = std::make_unique<Decoder>(config(), whole_model(config()), max_model_len, *builder_);
  weights_ = ops.memory().allocate(builder_->num_bytes());
  load_weights(builder_->place({static_cast<std::byte*>(weights_.data()), static_cast<size_t>(weights_.num_bytes())}));
  limits_.kv_groups = decoder_->kv_specs(dtype, 16);
  limits_.num_blocks.assign(limits_.kv_groups.size(), (max_model_len + 15) / 16);
  limits_.max_num_seqs = 1;
  limits_.max_num_batched_tokens = limits_.max_logits_rows = max_tokens;
  limits_.max_model_len = max_model_len;
  limits_.vocab_size = config().vocab_size;
  kv_ = std::make_unique<KvCache>(ops, limits_.kv_groups, limits_.num_blocks);
  decoder_->bind(ops, kv_->pools(), alone_);
  input_ = std::make_unique<StepInput>(ops, limits_);
  tables_ = std::make_unique<SlotTables>(ops, 1, 1, limits_.vocab_size);
  output_ = std::make_unique<StepOutput>(ops, limits_);
  tables_->set(0, SlotSampling{});
  tables_->send();
  activation_storage_ = ops.memory().allocate(decoder_->activation_bytes(dtype, max_tokens, max_tokens));
  activations_ = decoder_->make_activations(dtype, max_tokens, max_tokens, activation_storage_);
  reset();
}

void ModelHarness::reset() {
  slots_[0] = {.used = true, .occupant = 1};
  for (const int64_t count : limits_.num_blocks) {
    std::vector<int32_t> ids(count);  // descending, so that a block table that is ignored shows
    std::iota(ids.rbegin(), ids.rend(), 0);
    slots_[0].block_ids.push_back(ids);
  }
}

std::vector<std::vector<float>> ModelHarness::step(const std::vector<int32_t>& ids,
                                                   const std::vector<int32_t>& wanted) {
  std::vector<int32_t>& known = slots_[0].token_ids;
  StepPlan plan;
  plan.scheduled.push_back(
      {0, static_cast<int64_t>(known.size()), static_cast<int32_t>(ids.size()), TokenSource::kLiteral, wanted});
  known.insert(known.end(), ids.begin(), ids.end());
  const StepTensors tensors = input_->stage(plan, slots_);
  ops_.plan(tensors);
  const Activations a = cut(activations_, plan.num_tokens(), plan.num_logits_rows());
  const StepOutputShape shape = StepInput::output_shape(plan, slots_);
  decoder_->run_layers(ops_, tensors, tables_->tables(), activations_);
  decoder_->run_head(ops_, tensors, tables_->tables(), activations_, output_->device(shape));
  std::vector<std::vector<float>> out;
  for (size_t r = 0; r < wanted.size(); ++r) {
    out.emplace_back(config().vocab_size);
    ops_.stream().copy(out.back().data(), a.head.own_logits(plan.num_logits_rows()).row<float>(r),
                       config().vocab_size * 4);
  }
  ops_.stream().synchronize();
  return out;
}

std::vector<std::vector<float>> ModelHarness::logits(const std::vector<int32_t>& ids, int64_t chunk_size) {
  reset();
  std::vector<std::vector<float>> out;
  const auto total = static_cast<int64_t>(ids.size());
  for (int64_t at = 0; at < total; at += chunk_size) {
    const int64_t count = std::min(chunk_size, total - at);
    std::vector<int32_t> wanted(count);
    std::iota(wanted.begin(), wanted.end(), 0);
    for (auto& row : step({ids.begin() + at, ids.begin() + at + count}, wanted)) out.push_back(std::move(row));
  }
  return out;
}

}  // namespace tokenmill::test
