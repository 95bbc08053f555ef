#pragma once
#include <memory>

#include "engine/carver.h"
#include "engine/models/config.h"
#include "engine/models/row_parallel.h"
#include "engine/models/shard.h"
#include "engine/models/weights.h"
#include "kernels/ops.h"
#include "parallel/communicator.h"

namespace tokenmill {

/// Whole rows of logits of a vocabulary over ranks come together this many at a time: one for each thread of a rank,
/// and room for few beside the rank's own logits.
constexpr int64_t kGatheredRows = 32;

/// Buffers of the head, sized once for the most rows of a step. R rows of a step, P ranks of a tensor-parallel group.
struct HeadActivations {
  VocabShards shards;
  int64_t tp_rank;
  TensorView logits;    ///< [n] f32: [R, most ids of a shard]
  TensorView gathered;  ///< [n] f32: [P, up to kGatheredRows, most ids of a shard]; none for one rank
  TensorView partials;  ///< [n] i32: [P, kTileWords, R, most tiles of a shard]; none for one rank
  TensorView lists;     ///< [n] i32: [P, R, words of a shortlist]; none for one rank
  HeadTiles tiles;      ///< [max rows, tiles] of the whole vocabulary; logits undefined

  /// Where this rank's logits of num_rows rows lie: [num_rows, its ids].
  TensorView own_logits(int64_t num_rows) const;
};

/// Takes the buffers for steps of at most max_rows rows; none for a rank without a head.
HeadActivations carve_head(const ModelConfig& config, const ModelShard& shard, int64_t max_rows, Carver& carver);

/// What the head leaves behind: R sampled rows, N scored ones.
struct HeadOutput {
  PickResult picked;
  LogprobResult sampled;  ///< used when step.sampled.num_top is defined
  LogprobResult scored;
  /// Tokens whose hidden states behind the final norm are wanted, [H] i32 indices on the device, and where they go:
  /// [at least H, hidden_size] host memory of the model's dtype.
  TensorView hidden_tokens, hidden;
};

/// A rank's share of the two ends of a model: rows of the token embedding on the first pipeline stage, the head of some
/// tiles of the vocabulary and the choice of tokens on the last one. The ranks of a stage call everything together and
/// end with the same bits in everything they put out, which are those of one rank alone.
///
/// What a choice moves between ranks (formulas: README.md): the partials of all tiles always; then, where rows need few
/// ids of each shard (LogitsRows::shortlist) and no logprobs, lists of these, else whole rows of logits.
class VocabularyShard {
 public:
  /// Registers the weights with builder; throws as it does.
  VocabularyShard(const ModelConfig& config, const ModelShard& shard, WeightBuilder& builder);
  VocabularyShard(const VocabularyShard&) = delete;
  VocabularyShard& operator=(const VocabularyShard&) = delete;

  /// tp: the ranks of this stage, on the stream of the Ops of later calls; outlives this.
  void bind(parallel::Communicator& tp);

  /// out [T, hidden_size] = the embeddings of token_ids, as Ops::embed reads them. buffers: for T tokens. First stage
  /// only.
  void embed(Ops& ops, TensorView out, TensorView token_ids, TensorView last_token,
             const RowParallelLinear::Buffers& buffers) const;
  /// Chooses the tokens of step.rows and reports the logprobs that step.sampled asks for. normed [R, hidden_size]: the
  /// rows behind the final norm. Last stage only. May wait for the stream (rows with top-k). a.own_logits() holds this
  /// rank's logits of the rows afterwards.
  void choose(Ops& ops, TensorView normed, const StepTensors& step, const SamplingTables& tables,
              const HeadActivations& a, const HeadOutput& out) const;
  /// Logprobs of rows.token_ids behind as many rows of normed, at most as many as a was made for. Last stage only.
  void score(Ops& ops, TensorView normed, const LogprobRows& rows, const SamplingTables& tables,
             const HeadActivations& a, const LogprobResult& out) const;

 private:
  HeadTiles make_tiles(Ops& ops, TensorView normed, const LogitsRows& rows, const SamplingTables& tables,
                       const HeadActivations& a) const;
  template <typename Work>
  void for_whole_rows(const HeadTiles& tiles, const HeadActivations& a, Work&& work) const;
  bool pick_listed(Ops& ops, const HeadTiles& tiles, const StepTensors& step, const SamplingTables& tables,
                   const HeadActivations& a, const PickResult& out) const;

  int64_t vocab_size_, first_row_;
  VocabShards shards_;
  std::unique_ptr<Embedding> embedding_;
  std::unique_ptr<Linear> head_;
  parallel::Communicator* tp_ = nullptr;
};

}  // namespace tokenmill
