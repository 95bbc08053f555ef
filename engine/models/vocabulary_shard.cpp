#include "engine/models/vocabulary_shard.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill {
namespace {

/// A buffer's memory as elements of another dtype.
TensorView as_dtype(TensorView flat, DType dtype) {
  return TensorView(flat.data(), dtype, {flat.num_bytes() / dtype_size(dtype)}, flat.is_host());
}

/// Rows [begin, begin + count) of some.
struct RowRange {
  int64_t begin, count;

  TensorView operator()(const TensorView& v) const { return v.slice_rows(begin, count); }
  HeadTiles operator()(const HeadTiles& tiles) const {
    HeadTiles out = tiles;
    for (TensorView* v : {&out.max, &out.sum_exp, &out.adjusted_max, &out.argmax, &out.sum_exp_t, &out.non_finite}) {
      *v = (*this)(*v);
    }
    return out;
  }
  StepTensors operator()(const StepTensors& step) const {
    StepTensors out = step;
    for (TensorView* v : {&out.rows.tokens, &out.rows.slots, &out.rows.forced_ids}) *v = (*this)(*v);
    out.rows.masked_offsets = step.rows.masked_offsets.slice_rows(begin, count + 1);
    return out;
  }
  PickResult operator()(const PickResult& r) const {
    return {(*this)(r.token_ids), (*this)(r.logprobs), (*this)(r.status)};
  }
  LogprobRows operator()(const LogprobRows& r) const {
    return {(*this)(r.token_ids), (*this)(r.num_top), (*this)(r.listed_slots)};
  }
  LogprobResult operator()(const LogprobResult& r) const {
    return {(*this)(r.logprobs), (*this)(r.ranks),        (*this)(r.status),
            (*this)(r.top_ids),  (*this)(r.top_logprobs), (*this)(r.top_ranks)};
  }
};

}  // namespace

TensorView HeadActivations::own_logits(int64_t num_rows) const {
  return shaped(logits, {num_rows, shards.most_ids()}).slice_cols(0, shards.num_ids(tp_rank));
}

HeadActivations carve_head(const ModelConfig& config, const ModelShard& shard, int64_t max_rows, Carver& carver) {
  const int64_t rows = shard.is_last_stage() ? max_rows : 0;
  HeadActivations a;
  a.shards = {config.vocab_size, shard.grid.tp_size};
  a.tp_rank = shard.tp_rank;
  const int64_t ranks = a.shards.num_shards, others = ranks > 1 ? ranks : 0, num_tiles = a.shards.num_tiles();
  a.logits = carver.take(DType::kF32, {rows * a.shards.most_ids()});
  a.gathered = carver.take(DType::kF32, {others * std::min(rows, kGatheredRows) * a.shards.most_ids()});
  a.partials = carver.take(DType::kI32, {others * kTileWords * rows * a.shards.most_tiles()});
  const int64_t most_listed = std::min(kShortlistMaxTopK + kShortlistTies, a.shards.most_ids());
  a.lists = carver.take(DType::kI32, {others * rows * shortlist_words(most_listed)});
  a.tiles.max = carver.take(DType::kF32, {rows, num_tiles});
  a.tiles.sum_exp = carver.take(DType::kF32, {rows, num_tiles});
  a.tiles.adjusted_max = carver.take(DType::kF32, {rows, num_tiles});
  a.tiles.argmax = carver.take(DType::kI32, {rows, num_tiles});
  a.tiles.sum_exp_t = carver.take(DType::kF32, {rows, num_tiles});
  a.tiles.non_finite = carver.take(DType::kI32, {rows, num_tiles});
  return a;
}

VocabularyShard::VocabularyShard(const ModelConfig& config, const ModelShard& shard, WeightBuilder& builder)
    : vocab_size_(config.vocab_size),
      first_row_(shard.embedding_rows(config).begin),
      shards_{config.vocab_size, shard.grid.tp_size} {
  const std::string table = "model.embed_tokens.weight";
  builder.set_held(shard.is_first_stage());
  builder.embedding(embedding_, {table, config.vocab_size, shard.embedding_rows(config)}, config.hidden_size);
  builder.set_held(shard.is_last_stage());
  builder.linear(head_,
                 {{config.tie_embeddings ? table : "lm_head.weight", config.vocab_size, shard.vocabulary(config)}},
                 config.hidden_size);
  builder.set_held(true);
}

void VocabularyShard::bind(parallel::Communicator& tp) {
  TM_ASSERT(tp.size() == shards_.num_shards, "{} ranks for a vocabulary in {} shards", tp.size(), shards_.num_shards);
  tp_ = &tp;
}

/// Every token's row comes from one rank, the others add nothing to it.
void VocabularyShard::embed(Ops& ops, TensorView out, TensorView token_ids, TensorView last_token,
                            const RowParallelLinear::Buffers& buffers) const {
  if (tp_->size() == 1) return ops.embed(out, *embedding_, token_ids, last_token);
  PartSum sum(*tp_, as_dtype(buffers.parts, out.dtype()), 1, out.rows(), out.cols());
  ops.embed(sum.own(0), *embedding_, token_ids, last_token, first_row_);
  sum.start(*tp_);
  if (sum.in_one_transfer()) return ops.sum_parts(out, sum.wait_parts(*tp_));
  const TensorView sums = sum.finish(ops, *tp_, buffers.block_out, {});
  ops.sum_parts(out, shaped(sums, {1, out.rows(), out.cols()}));  // a copy
}

/// The partials of the whole vocabulary, and this rank's logits.
HeadTiles VocabularyShard::make_tiles(Ops& ops, TensorView normed, const LogitsRows& rows, const SamplingTables& tables,
                                      const HeadActivations& a) const {
  const int64_t num_rows = normed.rows(), ranks = tp_->size(), rank = tp_->rank();
  HeadTiles tiles = RowRange{0, num_rows}(a.tiles);
  tiles.logits = a.own_logits(num_rows);
  if (ranks == 1) {
    ops.lm_head_tiles(tiles, normed, *head_, 0, vocab_size_, rows, tables);
    return tiles;
  }
  const int64_t width = shards_.most_tiles(), num_words = kTileWords * num_rows * width;
  const TensorView words = shaped(a.partials, {kTileWords, num_rows, width}, rank * num_words);
  ops.lm_head_tiles(tiles_of_words(tiles.logits, words, shards_.num_tiles(rank)), normed, *head_,
                    shards_.first_id(rank), vocab_size_, rows, tables);
  tp_->wait(tp_->all_gather(shaped(a.partials, {ranks, num_words}), shaped(a.partials, {num_words}, rank * num_words)));
  ops.join_tiles(tiles, shaped(a.partials, {ranks, kTileWords, num_rows, width}), vocab_size_);
  return tiles;
}

/// work(rows, their tiles with the logits of the whole vocabulary), for ranges of rows that make up all of them.
template <typename Work>
void VocabularyShard::for_whole_rows(const HeadTiles& tiles, const HeadActivations& a, Work&& work) const {
  const int64_t num_rows = tiles.max.rows(), ranks = tp_->size(), width = shards_.most_ids();
  if (ranks == 1) return work(RowRange{0, num_rows}, tiles);
  for (int64_t begin = 0; begin < num_rows; begin += kGatheredRows) {
    const RowRange rows{begin, std::min(kGatheredRows, num_rows - begin)};
    const int64_t count = rows.count * width;
    tp_->wait(tp_->all_gather(shaped(a.gathered, {ranks, count}), shaped(a.logits, {count}, begin * width)));
    HeadTiles whole = rows(tiles);
    whole.logits = shaped(a.gathered, {ranks, rows.count, width});
    work(rows, whole);
  }
}

/// False when a list did not hold all ids that it should: nothing has been chosen.
bool VocabularyShard::pick_listed(Ops& ops, const HeadTiles& tiles, const StepTensors& step,
                                  const SamplingTables& tables, const HeadActivations& a, const PickResult& out) const {
  const int64_t num_rows = tiles.max.rows(), ranks = tp_->size(), rank = tp_->rank();
  const int64_t words = shortlist_words(std::min(step.rows.shortlist, shards_.most_ids())), count = num_rows * words;
  const TensorView lists = shaped(a.lists, {ranks, num_rows, words});
  ops.shortlist(shaped(a.lists, {num_rows, words}, rank * count), tiles, shards_.first_id(rank), vocab_size_, step,
                tables);
  tp_->wait(tp_->all_gather(shaped(a.lists, {ranks, count}), shaped(a.lists, {count}, rank * count)));
  if (step.rows.shortlist > 1 && !ops.shortlists_fit(lists)) return false;  // equally on all ranks
  ops.pick_listed(out, tiles, lists, vocab_size_, step, tables);
  return true;
}

void VocabularyShard::choose(Ops& ops, TensorView normed, const StepTensors& step, const SamplingTables& tables,
                             const HeadActivations& a, const HeadOutput& out) const {
  if (normed.rows() == 0) return;
  const HeadTiles tiles = make_tiles(ops, normed, step.rows, tables, a);
  const bool has_report = step.sampled.num_top.defined(), is_listed = tp_->size() > 1 && step.rows.shortlist > 0;
  if (is_listed && !has_report && pick_listed(ops, tiles, step, tables, a, out.picked)) return;
  for_whole_rows(tiles, a, [&](const RowRange& rows, const HeadTiles& whole) {
    const PickResult picked = rows(out.picked);
    ops.pick(picked, whole, vocab_size_, rows(step), tables);
    if (!has_report) return;
    const LogprobRows reported{picked.token_ids, rows(step.sampled.num_top), rows(step.sampled.listed_slots)};
    ops.token_logprobs(rows(out.sampled), whole, vocab_size_, reported, tables);
  });
}

void VocabularyShard::score(Ops& ops, TensorView normed, const LogprobRows& rows, const SamplingTables& tables,
                            const HeadActivations& a, const LogprobResult& out) const {
  if (normed.rows() == 0) return;
  for_whole_rows(make_tiles(ops, normed, {}, tables, a), a, [&](const RowRange& range, const HeadTiles& whole) {
    ops.token_logprobs(range(out), whole, vocab_size_, range(rows), tables);
  });
}

}  // namespace tokenmill
