#pragma once
#include <memory>

#include "engine/carver.h"
#include "engine/models/config.h"
#include "engine/models/shard.h"
#include "engine/models/weights.h"
#include "kernels/ops.h"

namespace tokenmill {

/// Buffers of the head, sized once for the most rows of a step.
struct HeadActivations {
  HeadTiles tiles;
};

/// Takes the buffers for steps of at most max_rows rows.
HeadActivations carve_head(const ModelConfig& config, int64_t max_rows, Carver& carver);

/// What the head leaves behind: R sampled rows, N scored ones.
struct HeadOutput {
  PickResult picked;
  LogprobResult sampled;  ///< used when step.sampled.num_top is defined
  LogprobResult scored;
};

/// A rank's share of the two ends of a model: the token embedding on the first pipeline stage, the head and the choice
/// of tokens on the last one.
class VocabularyShard {
 public:
  /// Registers the weights with builder; throws as it does.
  VocabularyShard(const ModelConfig& config, const ModelShard& shard, WeightBuilder& builder);
  VocabularyShard(const VocabularyShard&) = delete;
  VocabularyShard& operator=(const VocabularyShard&) = delete;

  /// out [T, hidden_size] = the embeddings of token_ids, as Ops::embed reads them. First stage only.
  void embed(Ops& ops, TensorView out, TensorView token_ids, TensorView last_token) const;
  /// Chooses the tokens of step.rows and reports the logprobs that step.sampled asks for. normed [R, hidden_size]: the
  /// rows behind the final norm. Last stage only. a.tiles holds the rows' logits afterwards.
  void choose(Ops& ops, TensorView normed, const StepTensors& step, const SamplingTables& tables,
              const HeadActivations& a, const HeadOutput& out) const;
  /// Logprobs of rows.token_ids behind as many rows of normed, at most as many as a was made for. Last stage only.
  void score(Ops& ops, TensorView normed, const LogprobRows& rows, const SamplingTables& tables,
             const HeadActivations& a, const LogprobResult& out) const;

 private:
  HeadTiles tiles(Ops& ops, TensorView normed, const LogitsRows& rows, const SamplingTables& tables,
                  const HeadActivations& a) const;

  int64_t vocab_size_;
  std::unique_ptr<Embedding> embedding_;
  std::unique_ptr<Linear> head_;
};

}  // namespace tokenmill
