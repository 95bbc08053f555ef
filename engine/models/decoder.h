#pragma once
#include <memory>
#include <span>
#include <vector>

#include "engine/models/config.h"
#include "engine/models/vocabulary_shard.h"
#include "engine/models/weights.h"
#include "kernels/ops.h"

namespace tokenmill {

/// Device buffers of one step's intermediate values, sized once for the largest step. T tokens, R logits rows.
struct Activations {
  TensorView hidden;                                 ///< [T, hidden_size] residual stream
  TensorView normed;                                 ///< [T, hidden_size]
  TensorView qkv;                                    ///< [T, (num_heads + 2 num_kv_heads) * head_dim]
  TensorView attention;                              ///< [T, num_heads * head_dim]
  TensorView gate_up;                                ///< [T, 2 * intermediate_size]
  TensorView gated;                                  ///< [T, intermediate_size]
  TensorView block_out;                              ///< [T, hidden_size]
  TensorView cos_sin;                                ///< [T, rotary_dim] f32
  TensorView row_hidden, row_attention, row_normed;  ///< [R, ...]: the rows that go on to the head
  HeadActivations head;
};

/// Views of `activations` cut to T tokens and R rows.
Activations cut(const Activations& activations, int64_t num_tokens, int64_t num_rows);

/// A dense decoder (Llama, Mistral, Qwen2, Qwen3) written once over Ops: what the architectures share, with their
/// differences as configuration. Touvron et al., arXiv:2302.13971; Qwen2 arXiv:2407.10671; Qwen3 arXiv:2505.09388.
class Decoder {
 public:
  /// Registers every weight with builder; throws Error(kIo) when the checkpoint lacks one or its shape differs.
  /// max_model_len fixes rotary frequencies for the job.
  Decoder(const ModelConfig& config, int64_t max_model_len, WeightBuilder& builder);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const ModelConfig& config() const { return config_; }

  /// One KvSpec per distinct attention window, in order of first appearance.
  std::vector<KvSpec> kv_specs(DType dtype, int64_t block_size) const;
  /// Binds the layers to their pools (one per kv_specs entry) and copies the rotary frequencies to the device.
  void bind(Ops& ops, std::span<KvPool* const> pools);

  /// Bytes of the activations for at most max_tokens and max_rows, and their views over base (null: only counts).
  int64_t activation_bytes(DType dtype, int64_t max_tokens, int64_t max_rows) const;
  Activations make_activations(DType dtype, int64_t max_tokens, int64_t max_rows, Buffer& storage) const;

  /// What ops.workspace_bytes() needs to know for steps of at most max_tokens and max_rows.
  WorkspaceRequest workspace(DType dtype, int64_t block_size, int64_t max_tokens, int64_t max_rows) const;

  /// One forward pass: out is filled, and a.head.tiles holds the R sampled rows (R may be 0) afterwards. a: uncut, as
  /// make_activations gave it. Scored rows pass through the head in turns of at most a's rows, so that their logits are
  /// never in memory together. Call ops.plan(step) first.
  void forward(Ops& ops, const StepTensors& step, const SamplingTables& tables, const Activations& a,
               const HeadOutput& out) const;

 private:
  struct Layer {
    TensorView input_norm, post_attention_norm;  // [hidden_size]
    std::unique_ptr<Linear> qkv, output, gate_up, down;
    TensorView qkv_bias, output_bias, gate_up_bias, down_bias;  // undefined when absent
    TensorView q_norm, k_norm;                                  // [head_dim]
    KvLayer kv;
    AttentionParams params;
  };
  void register_layer(Layer& layer, int64_t index, WeightBuilder& builder);
  void attend(Ops& ops, const StepTensors& step, const Layer& layer, const Activations& a) const;
  TensorView row_outputs(Ops& ops, TensorView row_tokens, const Activations& a) const;
  void score(Ops& ops, const StepTensors& step, const SamplingTables& tables, const Activations& a,
             const LogprobResult& out) const;
  void mlp(Ops& ops, const Layer& layer, TensorView out, TensorView normed, const Activations& a) const;

  ModelConfig config_;
  RopeFrequencies rope_;
  VocabularyShard vocabulary_;
  std::vector<Layer> layers_;
  TensorView final_norm_;
  Buffer rope_storage_;
  TensorView inv_freq_;
};

}  // namespace tokenmill
