#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/models/activations.h"
#include "engine/models/row_parallel.h"

namespace tokenmill {

/// One decoder layer, a rank's share of it: attention, then a gated MLP, each behind an RMS norm and added to the
/// residual stream.
class DecoderLayer {
 public:
  /// Registers the weights of layer `index`, named as in Hugging Face's checkpoints.
  void register_weights(WeightBuilder& builder, const ModelConfig& config, const ModelShard& shard, int64_t index);
  void bind(const KvLayer& kv) { kv_ = kv; }
  TensorView input_norm() const { return input_norm_; }

  /// The first product, of a.normed's tokens: what attend() wants of all of them.
  void project(Ops& ops, const Activations& a, Range tokens) const;
  /// From a.qkv to a.attention; all tokens of the step.
  void attend(Ops& ops, const StepTensors& step, const Activations& a) const;

  /// What follows attention reads `attention`, adds to `hidden` and uses `normed`; all [tokens, ...].
  struct Stream {
    TensorView attention, hidden, normed;
  };
  /// Behind attend(): output projection and MLP. next: the layer whose project() follows, or null. next_norm: the norm
  /// in front of it; undefined: the residual stream goes to another stage as it is.
  void complete(Ops& ops, parallel::Communicator& tp, const Stream& stream, const Activations& a, const Turns& turns,
                TensorView next_norm, const DecoderLayer* next) const;

 private:
  RowParallelLinear::Pending start_mlp(Ops& ops, parallel::Communicator& tp, TensorView normed, const Activations& a,
                                       Range tokens) const;
  static RowParallelLinear::Buffers buffers(const Activations& a, Range tokens, int64_t num_tokens);

  TensorView input_norm_, post_attention_norm_;  // [hidden_size]
  std::unique_ptr<Linear> qkv_, gate_up_;
  TensorView qkv_bias_, gate_up_bias_;  // undefined when absent
  TensorView q_norm_, k_norm_;          // [head_dim]
  RowParallelLinear output_, down_;
  int64_t q_size_ = 0, kv_size_ = 0;
  float norm_eps_ = 0;
  KvLayer kv_;
  AttentionParams params_;
};

}  // namespace tokenmill
