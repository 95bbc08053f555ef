#include "engine/models/decoder.h"

#include <algorithm>


namespace tokenmill {

Decoder::Decoder(const ModelConfig& config, const ModelShard& shard, int64_t max_model_len, WeightBuilder& builder)
    : config_(config),
      shard_(shard),
      rope_(rope_frequencies(config.rope, max_model_len)),
      vocabulary_(config, shard, builder),
      layers_(static_cast<size_t>(shard.layers.size())) {
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const bool held = i >= shard.layers.begin && i < shard.layers.end;
    DecoderLayer others;
    builder.set_held(held);
    (held ? layers_[static_cast<size_t>(i - shard.layers.begin)] : others).register_weights(builder, config, shard, i);
  }
  builder.set_held(shard.is_last_stage());
  builder.vector(final_norm_, {whole_tensor("model.norm.weight", config.hidden_size)});
  builder.set_held(true);
}

/// Distinct windows in order of first appearance: one KV group each, on every stage.
std::vector<int64_t> Decoder::windows() const {
  std::vector<int64_t> windows;
  for (const int64_t window : config_.layer_window) {
    if (std::find(windows.begin(), windows.end(), window) == windows.end()) windows.push_back(window);
  }
  return windows;
}

std::vector<KvSpec> Decoder::kv_specs(DType dtype, int64_t block_size) const {
  const auto first = config_.layer_window.begin() + shard_.layers.begin;
  std::vector<KvSpec> specs;
  for (const int64_t window : windows()) {
    KvSpec spec;
    spec.kind = window == 0 ? KvSpec::Kind::kFull : KvSpec::Kind::kSlidingWindow;
    spec.window = window;
    spec.num_layers = std::count(first, first + shard_.layers.size(), window);
    spec.num_kv_heads = shard_.kv_heads(config_).size();
    spec.k_dim = spec.v_dim = config_.head_dim;
    spec.dtype = dtype;
    spec.block_size = block_size;
    specs.push_back(spec);
  }
  return specs;
}

void Decoder::bind(Ops& ops, std::span<KvPool* const> pools, parallel::Communicator& tp) {
  TM_ASSERT(tp.size() == shard_.grid.tp_size && tp.rank() == shard_.tp_rank, "rank {} of {} holds the part of {} of {}",
            tp.rank(), tp.size(), shard_.tp_rank, shard_.grid.tp_size);
  tp_ = &tp;
  vocabulary_.bind(tp);
  const std::vector<int64_t> groups = windows();
  TM_ASSERT(pools.size() == groups.size());
  std::vector<int64_t> next(groups.size(), 0);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int64_t window = config_.layer_window[static_cast<size_t>(shard_.layers.begin) + i];
    const auto group = static_cast<size_t>(std::find(groups.begin(), groups.end(), window) - groups.begin());
    layers_[i].bind({pools[group], next[group]++, static_cast<int>(group)});
  }
  const int64_t count = static_cast<int64_t>(rope_.inv_freq.size());
  rope_storage_ = ops.memory().allocate(count * 4);
  inv_freq_ = TensorView(rope_storage_.data(), DType::kF32, {count}, ops.device().kind == DeviceKind::kCpu);
  ops.stream().copy(inv_freq_.data(), rope_.inv_freq.data(), count * 4);
  ops.stream().synchronize();
}

WorkspaceRequest Decoder::workspace(DType dtype, int64_t block_size, int64_t max_tokens, int64_t max_rows) const {
  const int64_t heads = shard_.heads(config_).size(), kv_heads = shard_.kv_heads(config_).size();
  const int64_t intermediate = shard_.intermediate(config_).size();
  return {.max_num_tokens = max_tokens,
          .max_logits_rows = max_rows,
          .widest_input = std::max({config_.hidden_size, heads * config_.head_dim, intermediate}),
          .widest_output = std::max({config_.hidden_size, (heads + 2 * kv_heads) * config_.head_dim, 2 * intermediate}),
          .hidden_size = config_.hidden_size,
          .vocab_size = config_.vocab_size,
          .num_heads = heads,
          .kv_groups = kv_specs(dtype, block_size)};
}

int64_t Decoder::activation_bytes(DType dtype, int64_t max_tokens, int64_t max_rows) const {
  Carver carver(nullptr, true);
  carve_activations(config_, shard_, dtype, max_tokens, max_rows, carver);
  return carver.num_bytes();
}

Activations Decoder::make_activations(DType dtype, int64_t max_tokens, int64_t max_rows, Buffer& storage) const {
  Carver carver(storage.data(), storage.device().kind == DeviceKind::kCpu);
  const Activations a = carve_activations(config_, shard_, dtype, max_tokens, max_rows, carver);
  TM_ASSERT(carver.num_bytes() <= storage.num_bytes());
  return a;
}

void Decoder::run_layers(Ops& ops, const StepTensors& step, const SamplingTables& tables,
                         const Activations& all) const {
  const int64_t num_tokens = step.token_ids.num_elements();
  const Activations a = cut(all, num_tokens, 0);
  const Turns turns = num_tokens >= overlap_from_ && tp_->size() > 1
                          ? RowParallelLinear::two_turns(shard_.grid, num_tokens, config_.hidden_size)
                          : Turns{{0, num_tokens}};
  if (shard_.is_first_stage())
    vocabulary_.embed(ops, a.hidden, step.token_ids, tables.last_token, {a.parts, a.block_out});
  ops.rope_angles(a.cos_sin, step.positions, inv_freq_, rope_.multiplier);
  ops.rms_norm(a.normed, a.hidden, layers_.front().input_norm(), static_cast<float>(config_.rms_norm_eps));
  layers_.front().project(ops, a, {0, num_tokens});
  for (size_t i = 0; i + 1 < layers_.size(); ++i) {
    layers_[i].attend(ops, step, a);
    layers_[i].complete(ops, *tp_, {a.attention, a.hidden, a.normed}, a, turns, layers_[i + 1].input_norm(),
                        &layers_[i + 1]);
  }
  layers_.back().attend(ops, step, a);
  if (!shard_.is_last_stage())
    layers_.back().complete(ops, *tp_, {a.attention, a.hidden, a.normed}, a, turns, {}, nullptr);
}

void Decoder::run_head(Ops& ops, const StepTensors& step, const SamplingTables& tables, const Activations& all,
                       const HeadOutput& out) const {
  if (!shard_.is_last_stage()) return;
  bring_hidden(ops, step.token_ids.num_elements(), all, out);
  score(ops, step, tables, all, out.scored);
  const int64_t num_rows = step.rows.tokens.num_elements();
  if (num_rows == 0) return;
  const Activations a = cut(all, step.token_ids.num_elements(), num_rows);
  vocabulary_.choose(ops, row_outputs(ops, step.rows.tokens, a), step, tables, a.head, out);
}

/// After the last layer's attention only the rows that are sampled or scored matter: the rest of that layer, and the
/// final norm, for the tokens row_tokens. a: cut to as many rows.
TensorView Decoder::row_outputs(Ops& ops, TensorView row_tokens, const Activations& a) const {
  ops.gather_rows(a.row_attention, a.attention, row_tokens);
  ops.gather_rows(a.row_hidden, a.hidden, row_tokens);
  layers_.back().complete(ops, *tp_, {a.row_attention, a.row_hidden, a.row_normed}, a,
                          {{0, row_tokens.num_elements()}}, final_norm_, nullptr);
  return a.row_normed;
}

/// Copies what row_outputs() makes of out.hidden_tokens to the host.
void Decoder::bring_hidden(Ops& ops, int64_t num_tokens, const Activations& all, const HeadOutput& out) const {
  const int64_t num_hidden = out.hidden_tokens.empty() ? 0 : out.hidden_tokens.num_elements();
  const int64_t most = all.row_normed.rows();
  for (int64_t begin = 0; begin < num_hidden; begin += most) {
    const int64_t count = std::min(most, num_hidden - begin);
    const TensorView rows =
        row_outputs(ops, out.hidden_tokens.slice_rows(begin, count), cut(all, num_tokens, count));
    ops.stream().copy(out.hidden.slice_rows(begin, count).data(), rows.data(), rows.num_bytes());
  }
}

void Decoder::score(Ops& ops, const StepTensors& step, const SamplingTables& tables, const Activations& all,
                    const LogprobResult& out) const {
  const int64_t num_scored = step.scored_tokens.num_elements(), num_tokens = step.token_ids.num_elements();
  SamplingTables lists = tables;
  lists.listed_ids = step.scored_lists;
  const int64_t most = std::min(all.row_normed.rows(), num_tokens);  // a position may be two rows
  for (int64_t begin = 0; begin < num_scored; begin += most) {
    const int64_t count = std::min(most, num_scored - begin);
    const auto part = [&](const TensorView& view) { return view.slice_rows(begin, count); };
    const Activations a = cut(all, num_tokens, count);
    vocabulary_.score(ops, row_outputs(ops, part(step.scored_tokens), a),
                      {part(step.scored.token_ids), part(step.scored.num_top), part(step.scored.listed_slots)}, lists,
                      a.head,
                      {part(out.logprobs), part(out.ranks), part(out.status), part(out.top_ids), part(out.top_logprobs),
                       part(out.top_ranks)});
  }
}

}  // namespace tokenmill
