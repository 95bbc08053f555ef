#include "engine/models/vocabulary_shard.h"

namespace tokenmill {

HeadActivations carve_head(const ModelConfig& config, int64_t max_rows, Carver& carver) {
  HeadActivations a;
  const int64_t num_tiles = (config.vocab_size + kVocabTile - 1) / kVocabTile;
  a.tiles.logits = carver.take(DType::kF32, {max_rows, config.vocab_size});
  a.tiles.max = carver.take(DType::kF32, {max_rows, num_tiles});
  a.tiles.sum_exp = carver.take(DType::kF32, {max_rows, num_tiles});
  a.tiles.adjusted_max = carver.take(DType::kF32, {max_rows, num_tiles});
  a.tiles.argmax = carver.take(DType::kI32, {max_rows, num_tiles});
  a.tiles.sum_exp_t = carver.take(DType::kF32, {max_rows, num_tiles});
  a.tiles.non_finite = carver.take(DType::kI32, {max_rows, num_tiles});
  return a;
}

VocabularyShard::VocabularyShard(const ModelConfig& config, const ModelShard& shard, WeightBuilder& builder)
    : vocab_size_(config.vocab_size) {
  const std::string table = "model.embed_tokens.weight";
  builder.set_held(shard.is_first_stage());
  builder.embedding(embedding_, whole_tensor(table, config.vocab_size), config.hidden_size);
  builder.set_held(shard.is_last_stage());
  builder.linear(head_, {whole_tensor(config.tie_embeddings ? table : "lm_head.weight", config.vocab_size)},
                 config.hidden_size);
  builder.set_held(true);
}

void VocabularyShard::embed(Ops& ops, TensorView out, TensorView token_ids, TensorView last_token) const {
  ops.embed(out, *embedding_, token_ids, last_token);
}

HeadTiles VocabularyShard::tiles(Ops& ops, TensorView normed, const LogitsRows& rows, const SamplingTables& tables,
                                 const HeadActivations& a) const {
  HeadTiles tiles = a.tiles;
  for (TensorView* v : {&tiles.logits, &tiles.max, &tiles.sum_exp, &tiles.adjusted_max, &tiles.argmax, &tiles.sum_exp_t,
                        &tiles.non_finite}) {
    *v = v->slice_rows(0, normed.rows());
  }
  ops.lm_head_tiles(tiles, normed, *head_, 0, vocab_size_, rows, tables);
  return tiles;
}

void VocabularyShard::choose(Ops& ops, TensorView normed, const StepTensors& step, const SamplingTables& tables,
                             const HeadActivations& a, const HeadOutput& out) const {
  const HeadTiles all = tiles(ops, normed, step.rows, tables, a);
  ops.pick(out.picked, all, vocab_size_, step, tables);
  if (!step.sampled.num_top.defined()) return;
  LogprobRows reported = step.sampled;
  reported.token_ids = out.picked.token_ids;
  ops.token_logprobs(out.sampled, all, vocab_size_, reported, tables);
}

void VocabularyShard::score(Ops& ops, TensorView normed, const LogprobRows& rows, const SamplingTables& tables,
                            const HeadActivations& a, const LogprobResult& out) const {
  ops.token_logprobs(out, tiles(ops, normed, {}, tables, a), vocab_size_, rows, tables);
}

}  // namespace tokenmill
