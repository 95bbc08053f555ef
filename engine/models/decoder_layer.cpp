#include "engine/models/decoder_layer.h"

#include <cmath>
#include <string>

namespace tokenmill {
namespace {

/// Of tensors whose rows are heads.
RowSlice head_rows(const std::string& name, int64_t num_heads, Range heads, int64_t head_dim) {
  return {name, num_heads * head_dim, {heads.begin * head_dim, heads.end * head_dim}};
}

}  // namespace

void DecoderLayer::register_weights(WeightBuilder& builder, const ModelConfig& c, const ModelShard& shard,
                                    int64_t index) {
  const std::string at = "model.layers." + std::to_string(index) + ".";
  const std::string attention = at + "self_attn.", mlp = at + "mlp.";
  const Range heads = shard.heads(c), kv_heads = shard.kv_heads(c), intermediate = shard.intermediate(c);
  const auto qkv_slices = [&](const std::string& kind) -> std::vector<RowSlice> {
    return {head_rows(attention + "q_proj." + kind, c.num_heads, heads, c.head_dim),
            head_rows(attention + "k_proj." + kind, c.num_kv_heads, kv_heads, c.head_dim),
            head_rows(attention + "v_proj." + kind, c.num_kv_heads, kv_heads, c.head_dim)};
  };
  const auto gate_up_slices = [&](const std::string& kind) -> std::vector<RowSlice> {
    return {{mlp + "gate_proj." + kind, c.intermediate_size, intermediate},
            {mlp + "up_proj." + kind, c.intermediate_size, intermediate}};
  };
  std::vector<Range> output_inputs, down_inputs;
  for (int i = 0; i < shard.num_parts(); ++i) {
    const Range part = shard.part_heads(c, i);
    output_inputs.push_back({part.begin * c.head_dim, part.end * c.head_dim});
    down_inputs.push_back(shard.part_intermediate(c, i));
  }
  builder.vector(input_norm_, {whole_tensor(at + "input_layernorm.weight", c.hidden_size)});
  builder.linear(qkv_, qkv_slices("weight"), c.hidden_size);
  if (c.qkv_bias) builder.vector(qkv_bias_, qkv_slices("bias"));
  if (c.qk_norm) {
    builder.vector(q_norm_, {whole_tensor(attention + "q_norm.weight", c.head_dim)});
    builder.vector(k_norm_, {whole_tensor(attention + "k_norm.weight", c.head_dim)});
  }
  output_.register_weights(builder, attention + "o_proj", c.num_heads * c.head_dim, output_inputs, c.hidden_size,
                           c.output_bias);
  builder.vector(post_attention_norm_, {whole_tensor(at + "post_attention_layernorm.weight", c.hidden_size)});
  builder.linear(gate_up_, gate_up_slices("weight"), c.hidden_size);
  if (c.mlp_bias) builder.vector(gate_up_bias_, gate_up_slices("bias"));
  down_.register_weights(builder, mlp + "down_proj", c.intermediate_size, down_inputs, c.hidden_size, c.mlp_bias);
  q_size_ = heads.size() * c.head_dim;
  kv_size_ = kv_heads.size() * c.head_dim;
  norm_eps_ = static_cast<float>(c.rms_norm_eps);
  params_.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)));
  params_.window = c.layer_window[static_cast<size_t>(index)];
}

void DecoderLayer::project(Ops& ops, const Activations& a, Range tokens) const {
  ops.linear(a.qkv.slice_rows(tokens.begin, tokens.size()), a.normed.slice_rows(tokens.begin, tokens.size()), *qkv_,
             {.bias = qkv_bias_, .residual = {}});
}

void DecoderLayer::attend(Ops& ops, const StepTensors& step, const Activations& a) const {
  const TensorView query = a.qkv.slice_cols(0, q_size_);
  ops.rope_and_store_kv({.q = query,
                         .k = a.qkv.slice_cols(q_size_, kv_size_),
                         .v = a.qkv.slice_cols(q_size_ + kv_size_, kv_size_),
                         .cos_sin = a.cos_sin,
                         .q_norm = q_norm_,
                         .k_norm = k_norm_,
                         .norm_eps = norm_eps_},
                        step, kv_);
  ops.attention(a.attention, query, step, kv_, params_);
}

/// Each turn has a region of its own, since its sum may be on its way while the other's is made.
RowParallelLinear::Buffers DecoderLayer::buffers(const Activations& a, Range tokens, int64_t num_tokens) {
  const int64_t begin = num_tokens == 0 ? 0 : a.parts.num_elements() * tokens.begin / num_tokens;
  const int64_t end = num_tokens == 0 ? 0 : a.parts.num_elements() * tokens.end / num_tokens;
  return {.parts = a.parts.slice_rows(begin, end - begin),
          .block_out = a.block_out.slice_rows(tokens.begin, a.block_out.rows() - tokens.begin)};
}

RowParallelLinear::Pending DecoderLayer::start_mlp(Ops& ops, parallel::Communicator& tp, TensorView normed,
                                                   const Activations& a, Range tokens) const {
  const auto mine = [&](const TensorView& view) { return view.slice_rows(tokens.begin, tokens.size()); };
  ops.linear(mine(a.gate_up), mine(normed), *gate_up_, {.bias = gate_up_bias_, .residual = {}});
  ops.gated_activation(mine(a.gated), mine(a.gate_up), Activation::kSilu);
  return down_.start(ops, tp, mine(a.gated), buffers(a, tokens, normed.rows()));
}

void DecoderLayer::complete(Ops& ops, parallel::Communicator& tp, const Stream& stream, const Activations& a,
                            const Turns& turns, TensorView next_norm, const DecoderLayer* next) const {
  const auto part = [](const TensorView& view, Range tokens) { return view.slice_rows(tokens.begin, tokens.size()); };
  std::vector<RowParallelLinear::Pending> pending;
  for (const Range tokens : turns) {
    pending.push_back(
        output_.start(ops, tp, part(stream.attention, tokens), buffers(a, tokens, stream.hidden.rows())));
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    output_.finish(ops, tp, pending[i], part(stream.hidden, turns[i]), part(stream.normed, turns[i]),
                   post_attention_norm_, norm_eps_);
    pending[i] = start_mlp(ops, tp, stream.normed, a, turns[i]);
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    down_.finish(ops, tp, pending[i], part(stream.hidden, turns[i]), part(stream.normed, turns[i]), next_norm,
                 norm_eps_);
    if (next != nullptr) next->project(ops, a, turns[i]);
  }
}

}  // namespace tokenmill
