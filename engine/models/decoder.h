#pragma once
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "engine/models/decoder_layer.h"

namespace tokenmill {

/// A dense decoder (Llama, Mistral, Qwen2, Qwen3) written once over Ops: what the architectures share, with their
/// differences as configuration. Touvron et al., arXiv:2302.13971; Qwen2 arXiv:2407.10671; Qwen3 arXiv:2505.09388.
/// A rank holds a shard of it: some of the layers, and of each layer its share of heads and columns. The ranks of a
/// pipeline stage hold the same layers and call everything together.
class Decoder {
 public:
  /// Registers every weight with builder, this rank's as held; throws Error(kIo) when the checkpoint lacks one or its
  /// shape differs. max_model_len fixes rotary frequencies for the job. shard: check_grid() has accepted it.
  Decoder(const ModelConfig& config, const ModelShard& shard, int64_t max_model_len, WeightBuilder& builder);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const ModelConfig& config() const { return config_; }
  const ModelShard& shard() const { return shard_; }

  /// One KvSpec per distinct attention window of the model, in order of first appearance; num_layers counts the rank's
  /// layers and may be 0.
  std::vector<KvSpec> kv_specs(DType dtype, int64_t block_size) const;
  /// Binds the layers to their pools (one per kv_specs entry) and copies the rotary frequencies to the device.
  /// tp: the ranks of this stage, on the stream of ops; outlives the decoder.
  void bind(Ops& ops, std::span<KvPool* const> pools, parallel::Communicator& tp);
  /// Steps of at least so many tokens are computed in two turns, each one's transfers beside the other's products.
  /// Does not change a bit.
  void overlap_from(int64_t min_tokens) { overlap_from_ = min_tokens; }

  /// Bytes of the activations for at most max_tokens and max_rows, and their views over base (null: only counts).
  int64_t activation_bytes(DType dtype, int64_t max_tokens, int64_t max_rows) const;
  Activations make_activations(DType dtype, int64_t max_tokens, int64_t max_rows, Buffer& storage) const;

  /// What ops.workspace_bytes() needs to know for steps of at most max_tokens and max_rows.
  WorkspaceRequest workspace(DType dtype, int64_t block_size, int64_t max_tokens, int64_t max_rows) const;

  /// A forward pass is run_layers(), then run_head(). Of the step's sizes, the first depends on those of tokens and
  /// sequences alone, the second on that of rows: its tokens may be any up to a's. a: uncut, as make_activations gave
  /// it.
  ///
  /// This rank's layers, on the last stage through its last attention. A stage that is not the first begins with the
  /// a.hidden that it was given, one that is not the last leaves a.hidden for the next. Call ops.plan(step) first.
  void run_layers(Ops& ops, const StepTensors& step, const SamplingTables& tables, const Activations& a) const;
  /// On the last stage: fills out from what run_layers() left. a.head holds this rank's logits of the R sampled rows (R
  /// may be 0) afterwards; scored rows pass through the head in turns of at most a's rows, so that their logits are
  /// never in memory together; hidden states leave in such turns too.
  void run_head(Ops& ops, const StepTensors& step, const SamplingTables& tables, const Activations& a,
                const HeadOutput& out) const;

 private:
  TensorView row_outputs(Ops& ops, TensorView row_tokens, const Activations& a) const;
  void bring_hidden(Ops& ops, int64_t num_tokens, const Activations& all, const HeadOutput& out) const;
  void score(Ops& ops, const StepTensors& step, const SamplingTables& tables, const Activations& a,
             const LogprobResult& out) const;
  std::vector<int64_t> windows() const;
  int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }

  ModelConfig config_;
  ModelShard shard_;
  RopeFrequencies rope_;
  VocabularyShard vocabulary_;
  std::vector<DecoderLayer> layers_;  // of the stage
  TensorView final_norm_;
  parallel::Communicator* tp_ = nullptr;
  int64_t overlap_from_ = std::numeric_limits<int64_t>::max();
  Buffer rope_storage_;
  TensorView inv_freq_;
};

}  // namespace tokenmill
