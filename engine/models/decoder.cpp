#include "engine/models/decoder.h"

#include <algorithm>
#include <cmath>

#include "engine/carver.h"

namespace tokenmill {
namespace {

/// Distinct windows in order of first appearance: one KV group each.
std::vector<int64_t> distinct_windows(const ModelConfig& config) {
  std::vector<int64_t> windows;
  for (const int64_t w : config.layer_window) {
    if (std::find(windows.begin(), windows.end(), w) == windows.end()) windows.push_back(w);
  }
  return windows;
}

Activations carve(const ModelConfig& c, DType dtype, int64_t tokens, int64_t rows, Carver& carver) {
  Activations a;
  const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  a.hidden = carver.take(dtype, {tokens, c.hidden_size});
  a.normed = carver.take(dtype, {tokens, c.hidden_size});
  a.qkv = carver.take(dtype, {tokens, q + 2 * kv});
  a.attention = carver.take(dtype, {tokens, q});
  a.gate_up = carver.take(dtype, {tokens, 2 * c.intermediate_size});
  a.gated = carver.take(dtype, {tokens, c.intermediate_size});
  a.block_out = carver.take(dtype, {tokens, c.hidden_size});
  a.cos_sin = carver.take(DType::kF32, {tokens, c.rope.rotary_dim});
  a.row_hidden = carver.take(dtype, {rows, c.hidden_size});
  a.row_attention = carver.take(dtype, {rows, q});
  a.row_normed = carver.take(dtype, {rows, c.hidden_size});
  a.head = carve_head(c, rows, carver);
  return a;
}

}  // namespace

Activations cut(const Activations& a, int64_t num_tokens, int64_t num_rows) {
  Activations out = a;
  for (TensorView* v :
       {&out.hidden, &out.normed, &out.qkv, &out.attention, &out.gate_up, &out.gated, &out.block_out, &out.cos_sin}) {
    *v = v->slice_rows(0, num_tokens);
  }
  for (TensorView* v : {&out.row_hidden, &out.row_attention, &out.row_normed}) *v = v->slice_rows(0, num_rows);
  return out;
}

Decoder::Decoder(const ModelConfig& config, int64_t max_model_len, WeightBuilder& builder)
    : config_(config),
      rope_(rope_frequencies(config.rope, max_model_len)),
      vocabulary_(config, whole_model(config), builder),
      layers_(config.num_layers) {
  for (int64_t i = 0; i < config.num_layers; ++i) register_layer(layers_[i], i, builder);
  builder.vector(final_norm_, {whole_tensor("model.norm.weight", config.hidden_size)});
}

void Decoder::register_layer(Layer& layer, int64_t index, WeightBuilder& builder) {
  const ModelConfig& c = config_;
  const std::string at = "model.layers." + std::to_string(index) + ".";
  const std::string attention = at + "self_attn.", mlp = at + "mlp.";
  const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  builder.vector(layer.input_norm, {whole_tensor(at + "input_layernorm.weight", c.hidden_size)});
  const auto qkv_slices = [&](const std::string& kind) -> std::vector<RowSlice> {
    return {whole_tensor(attention + "q_proj." + kind, q), whole_tensor(attention + "k_proj." + kind, kv),
            whole_tensor(attention + "v_proj." + kind, kv)};
  };
  const auto gate_up_slices = [&](const std::string& kind) -> std::vector<RowSlice> {
    return {whole_tensor(mlp + "gate_proj." + kind, c.intermediate_size),
            whole_tensor(mlp + "up_proj." + kind, c.intermediate_size)};
  };
  builder.linear(layer.qkv, qkv_slices("weight"), c.hidden_size);
  if (c.qkv_bias) builder.vector(layer.qkv_bias, qkv_slices("bias"));
  if (c.qk_norm) {
    builder.vector(layer.q_norm, {whole_tensor(attention + "q_norm.weight", c.head_dim)});
    builder.vector(layer.k_norm, {whole_tensor(attention + "k_norm.weight", c.head_dim)});
  }
  builder.linear(layer.output, {whole_tensor(attention + "o_proj.weight", c.hidden_size)}, q);
  if (c.output_bias) builder.vector(layer.output_bias, {whole_tensor(attention + "o_proj.bias", c.hidden_size)});
  builder.vector(layer.post_attention_norm, {whole_tensor(at + "post_attention_layernorm.weight", c.hidden_size)});
  builder.linear(layer.gate_up, gate_up_slices("weight"), c.hidden_size);
  builder.linear(layer.down, {whole_tensor(mlp + "down_proj.weight", c.hidden_size)}, c.intermediate_size);
  if (c.mlp_bias) {
    builder.vector(layer.gate_up_bias, gate_up_slices("bias"));
    builder.vector(layer.down_bias, {whole_tensor(mlp + "down_proj.bias", c.hidden_size)});
  }
  layer.params.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)));
  layer.params.window = c.layer_window[index];
}

std::vector<KvSpec> Decoder::kv_specs(DType dtype, int64_t block_size) const {
  std::vector<KvSpec> specs;
  for (const int64_t window : distinct_windows(config_)) {
    KvSpec spec;
    spec.kind = window == 0 ? KvSpec::Kind::kFull : KvSpec::Kind::kSlidingWindow;
    spec.window = window;
    spec.num_layers = std::count(config_.layer_window.begin(), config_.layer_window.end(), window);
    spec.num_kv_heads = config_.num_kv_heads;
    spec.k_dim = spec.v_dim = config_.head_dim;
    spec.dtype = dtype;
    spec.block_size = block_size;
    specs.push_back(spec);
  }
  return specs;
}

void Decoder::bind(Ops& ops, std::span<KvPool* const> pools) {
  const std::vector<int64_t> windows = distinct_windows(config_);
  TM_ASSERT(pools.size() == windows.size());
  std::vector<int64_t> next(windows.size(), 0);
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    const auto group = std::find(windows.begin(), windows.end(), config_.layer_window[i]) - windows.begin();
    layers_[i].kv = {pools[group], next[group]++, static_cast<int>(group)};
  }
  const int64_t count = static_cast<int64_t>(rope_.inv_freq.size());
  rope_storage_ = ops.memory().allocate(count * 4);
  inv_freq_ = TensorView(rope_storage_.data(), DType::kF32, {count}, ops.device().kind == DeviceKind::kCpu);
  ops.stream().copy(inv_freq_.data(), rope_.inv_freq.data(), count * 4);
  ops.stream().synchronize();
}

WorkspaceRequest Decoder::workspace(DType dtype, int64_t block_size, int64_t max_tokens, int64_t max_rows) const {
  const int64_t q = config_.num_heads * config_.head_dim, kv = config_.num_kv_heads * config_.head_dim;
  return {.max_num_tokens = max_tokens,
          .max_logits_rows = max_rows,
          .widest_input = std::max({config_.hidden_size, q, config_.intermediate_size}),
          .widest_output = std::max({config_.hidden_size, q + 2 * kv, 2 * config_.intermediate_size}),
          .hidden_size = config_.hidden_size,
          .vocab_size = config_.vocab_size,
          .num_heads = config_.num_heads,
          .kv_groups = kv_specs(dtype, block_size)};
}

int64_t Decoder::activation_bytes(DType dtype, int64_t max_tokens, int64_t max_rows) const {
  Carver carver(nullptr, true);
  carve(config_, dtype, max_tokens, max_rows, carver);
  return carver.num_bytes();
}

Activations Decoder::make_activations(DType dtype, int64_t max_tokens, int64_t max_rows, Buffer& storage) const {
  Carver carver(storage.data(), storage.device().kind == DeviceKind::kCpu);
  const Activations a = carve(config_, dtype, max_tokens, max_rows, carver);
  TM_ASSERT(carver.num_bytes() <= storage.num_bytes());
  return a;
}

void Decoder::attend(Ops& ops, const StepTensors& step, const Layer& layer, const Activations& a) const {
  const int64_t q = config_.num_heads * config_.head_dim, kv = config_.num_kv_heads * config_.head_dim;
  ops.linear(a.qkv, a.normed, *layer.qkv, {.bias = layer.qkv_bias, .residual = {}});
  const TensorView query = a.qkv.slice_cols(0, q);
  ops.rope_and_store_kv({.q = query,
                         .k = a.qkv.slice_cols(q, kv),
                         .v = a.qkv.slice_cols(q + kv, kv),
                         .cos_sin = a.cos_sin,
                         .q_norm = layer.q_norm,
                         .k_norm = layer.k_norm,
                         .norm_eps = static_cast<float>(config_.rms_norm_eps)},
                        step, layer.kv);
  ops.attention(a.attention, query, step, layer.kv, layer.params);
}

void Decoder::mlp(Ops& ops, const Layer& layer, TensorView out, TensorView normed, const Activations& a) const {
  const TensorView gate_up = a.gate_up.slice_rows(0, normed.rows()), gated = a.gated.slice_rows(0, normed.rows());
  ops.linear(gate_up, normed, *layer.gate_up, {.bias = layer.gate_up_bias, .residual = {}});
  ops.gated_activation(gated, gate_up, Activation::kSilu);
  ops.linear(out, gated, *layer.down, {.bias = layer.down_bias, .residual = {}});
}

void Decoder::forward(Ops& ops, const StepTensors& step, const SamplingTables& tables, const Activations& all,
                      const HeadOutput& out) const {
  const auto eps = static_cast<float>(config_.rms_norm_eps);
  const int64_t num_rows = step.rows.tokens.num_elements();
  const Activations a = cut(all, step.token_ids.num_elements(), num_rows);
  vocabulary_.embed(ops, a.hidden, step.token_ids, tables.last_token);
  ops.rope_angles(a.cos_sin, step.positions, inv_freq_, rope_.multiplier);
  ops.rms_norm(a.normed, a.hidden, layers_.front().input_norm, eps);
  for (size_t i = 0; i + 1 < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    attend(ops, step, layer, a);
    ops.linear(a.block_out, a.attention, *layer.output, {.bias = layer.output_bias, .residual = {}});
    ops.add_rms_norm(a.normed, a.hidden, a.block_out, layer.post_attention_norm, eps);
    mlp(ops, layer, a.block_out, a.normed, a);
    ops.add_rms_norm(a.normed, a.hidden, a.block_out, layers_[i + 1].input_norm, eps);
  }
  attend(ops, step, layers_.back(), a);
  score(ops, step, tables, all, out.scored);
  if (num_rows == 0) return;
  vocabulary_.choose(ops, row_outputs(ops, step.rows.tokens, a), step, tables, a.head, out);
}

/// After the last layer's attention only the rows that are sampled or scored matter: the rest of that layer, and the
/// final norm, for the tokens row_tokens. a: cut to as many rows.
TensorView Decoder::row_outputs(Ops& ops, TensorView row_tokens, const Activations& a) const {
  const auto eps = static_cast<float>(config_.rms_norm_eps);
  const Layer& last = layers_.back();
  const TensorView row_out = a.block_out.slice_rows(0, row_tokens.num_elements());
  ops.gather_rows(a.row_attention, a.attention, row_tokens);
  ops.gather_rows(a.row_hidden, a.hidden, row_tokens);
  ops.linear(row_out, a.row_attention, *last.output, {.bias = last.output_bias, .residual = {}});
  ops.add_rms_norm(a.row_normed, a.row_hidden, row_out, last.post_attention_norm, eps);
  mlp(ops, last, row_out, a.row_normed, a);
  ops.add_rms_norm(a.row_normed, a.row_hidden, row_out, final_norm_, eps);
  return a.row_normed;
}

void Decoder::score(Ops& ops, const StepTensors& step, const SamplingTables& tables, const Activations& all,
                    const LogprobResult& out) const {
  const int64_t num_scored = step.scored_tokens.num_elements(), num_tokens = step.token_ids.num_elements();
  for (int64_t begin = 0; begin < num_scored; begin += all.row_normed.rows()) {
    const int64_t count = std::min(all.row_normed.rows(), num_scored - begin);
    const auto part = [&](const TensorView& view) { return view.slice_rows(begin, count); };
    const Activations a = cut(all, num_tokens, count);
    vocabulary_.score(ops, row_outputs(ops, part(step.scored_tokens), a),
                      {part(step.scored.token_ids), part(step.scored.num_top), part(step.scored.listed_slots)}, tables,
                      a.head,
                      {part(out.logprobs), part(out.ranks), part(out.status), part(out.top_ids), part(out.top_logprobs),
                       part(out.top_ranks)});
  }
}

}  // namespace tokenmill
