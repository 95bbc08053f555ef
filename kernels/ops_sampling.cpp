#include "kernels/core/check.h"
#include "kernels/op_checks.h"
#include "kernels/ops.h"

// The checks of the head's and of the sampling operations.
namespace tokenmill {
namespace {

using checks::Expect;
using checks::fail;

/// The partials of `rows` rows and `count` tiles.
void check_partials(const char* op, const HeadTiles& tiles, int64_t rows, int64_t count, const char* because,
                    const TensorView& other) {
  const Expect expect{op};
  expect.matrix("max", tiles.max, rows, count, DType::kF32, because, other);
  expect.matrix("sum_exp", tiles.sum_exp, rows, count, DType::kF32, because, other);
  expect.matrix("adjusted_max", tiles.adjusted_max, rows, count, DType::kF32, because, other);
  expect.matrix("argmax", tiles.argmax, rows, count, DType::kI32, because, other);
  expect.matrix("sum_exp_t", tiles.sum_exp_t, rows, count, DType::kF32, because, other);
  expect.matrix("non_finite", tiles.non_finite, rows, count, DType::kI32, because, other);
}

int64_t tiles_of(int64_t num_ids) { return (num_ids + kVocabTile - 1) / kVocabTile; }

/// Logits in one piece, with their partials.
void check_tiles(const char* op, const HeadTiles& tiles) {
  const TensorView& logits = tiles.logits;
  if (logits.rank() != 2 || logits.dtype() != DType::kF32) {
    fail(op, "logits is {}; it must be a float32 matrix", logits.describe());
  }
  check_partials(op, tiles, logits.rows(), tiles_of(logits.cols()), "the tiles of logits", logits);
}

/// Logits of a whole vocabulary, in one piece or gathered from several shards, with their partials.
void check_whole_tiles(const char* op, const HeadTiles& tiles, int64_t vocab_size) {
  const TensorView& logits = tiles.logits;
  if (logits.rank() != 3) {
    check_tiles(op, tiles);
    if (vocab_size < 1 || vocab_size > logits.cols()) {
      fail(op, "vocab_size {} does not fit logits {}", vocab_size, logits.describe());
    }
    return;
  }
  const VocabShards shards{vocab_size, logits.size(0)};
  if (vocab_size < 1 || logits.dtype() != DType::kF32 || logits.cols() < shards.most_ids()) {
    fail(op, "logits {} do not hold a vocabulary of {} in {} shards; expected float32 [{}, rows, at least {}]",
         logits.describe(), vocab_size, logits.size(0), logits.size(0), vocab_size < 1 ? 1 : shards.most_ids());
  }
  check_partials(op, tiles, logits.size(1), shards.num_tiles(), "the tiles of logits", logits);
}

void check_rows(const char* op, const LogitsRows& rows, int64_t count, const TensorView& logits) {
  const Expect expect{op};
  expect.vector("rows.slots", rows.slots, count, DType::kI32, "logits", logits);
  expect.vector("rows.forced_ids", rows.forced_ids, count, DType::kI32, "logits", logits);
  expect.vector("rows.masked_offsets", rows.masked_offsets, count + 1, DType::kI32, "logits", logits);
  if (rows.masked_ids.rank() != 1 || rows.masked_ids.dtype() != DType::kI32) {
    fail(op, "rows.masked_ids is {}; it must be a vector of int32", rows.masked_ids.describe());
  }
}

/// What pick() leaves behind, and the rows that it chooses for.
void check_pick(const char* op, const PickResult& out, const HeadTiles& tiles, const StepTensors& step) {
  const Expect expect{op};
  const int64_t rows = tiles.max.rows();
  expect.vector("token_ids", out.token_ids, rows, DType::kI32, "max", tiles.max);
  expect.vector("logprobs", out.logprobs, rows, DType::kF32, "max", tiles.max);
  expect.vector("status", out.status, rows, DType::kI32, "max", tiles.max);
  expect.vector("rows.tokens", step.rows.tokens, rows, DType::kI32, "max", tiles.max);
  check_rows(op, step.rows, rows, tiles.max);
}

void check_list(const char* op, const TensorView& list, int rank, const TensorView& other) {
  if (list.rank() == rank && list.dtype() == DType::kI32 && list.cols() % 3 == 1) return;
  fail(op, "list {} for {}; expected int32 of rank {} with 1 word more than a multiple of 3", list.describe(),
       other.describe(), rank);
}

void check_table(const char* op, const char* name, const TensorView& table, DType dtype, int32_t slot) {
  if (table.rank() != 2 || table.dtype() != dtype) {
    fail(op, "{} is {}; it must be a matrix of {}", name, table.describe(), to_string(dtype));
  }
  if (slot < 0 || slot >= table.rows()) fail(op, "slot {} of {} {}", slot, name, table.describe());
}

void check_vocab_ids(const char* op, std::span<const int32_t> ids, int64_t vocab_size) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size) fail(op, "token id {} of a vocabulary of {}", id, vocab_size);
  }
}

}  // namespace

void Ops::count_tokens(const SamplingTables& tables, int32_t slot, std::span<const int32_t> token_ids,
                       int64_t num_prompt_tokens) {
  const char* op = "count_tokens";
  check_table(op, "counts", tables.counts, DType::kI32, slot);
  check_vocab_ids(op, token_ids, tables.counts.cols());
  if (num_prompt_tokens < 0 || num_prompt_tokens > static_cast<int64_t>(token_ids.size())) {
    fail(op, "{} prompt tokens of {}", num_prompt_tokens, token_ids.size());
  }
  do_count_tokens(tables, slot, token_ids, num_prompt_tokens);
}

void Ops::set_bias(const SamplingTables& tables, int32_t slot, float fill, std::span<const int32_t> ids,
                   std::span<const float> values) {
  const char* op = "set_bias";
  check_table(op, "bias", tables.bias, DType::kF32, slot);
  check_vocab_ids(op, ids, tables.bias.cols());
  if (ids.size() != values.size()) fail(op, "{} ids and {} values", ids.size(), values.size());
  do_set_bias(tables, slot, fill, ids, values);
}

void Ops::lm_head_tiles(const HeadTiles& out, TensorView hidden, const Linear& head, int64_t first_id,
                        int64_t vocab_size, const LogitsRows& rows, const SamplingTables& tables) {
  const char* op = "lm_head_tiles";
  const LinearSpec& spec = head.spec();
  check_tiles(op, out);
  if (hidden.rank() != 2 || hidden.rows() != out.logits.rows() || hidden.cols() != spec.in_features ||
      hidden.dtype() != spec.compute_dtype || out.logits.cols() != spec.out_features) {
    fail(op, "hidden {} and logits {} do not match the head {} [{}, {}]", hidden.describe(), out.logits.describe(),
         to_string(spec.compute_dtype), spec.out_features, spec.in_features);
  }
  if (first_id < 0 || first_id % kVocabTile != 0) fail(op, "first_id {} is not a multiple of {}", first_id, kVocabTile);
  if (rows.slots.defined()) check_rows(op, rows, hidden.rows(), out.logits);
  if (hidden.rows() > 0) do_lm_head_tiles(out, hidden, head, first_id, vocab_size, rows, tables);
}

void Ops::pick(const PickResult& out, const HeadTiles& tiles, int64_t vocab_size, const StepTensors& step,
               const SamplingTables& tables) {
  const char* op = "pick";
  check_whole_tiles(op, tiles, vocab_size);
  check_pick(op, out, tiles, step);
  if (tiles.max.rows() > 0) do_pick(out, tiles, vocab_size, step, tables);
}

HeadTiles tiles_of_words(TensorView logits, TensorView words, int64_t num_tiles) {
  TM_ASSERT(words.rank() == 3 && words.dtype() == DType::kI32 && words.size(0) == kTileWords && words.contiguous() &&
                num_tiles <= words.cols(),
            "{} for the partials of {} tiles", words.describe(), num_tiles);
  const int64_t rows = words.size(1), width = words.cols();
  const auto view = [&](int64_t i, DType dtype) {
    return TensorView(words.as<int32_t>() + i * rows * width, dtype, {rows, num_tiles}, words.is_host(), width);
  };
  return {.logits = logits,
          .max = view(0, DType::kF32),
          .sum_exp = view(1, DType::kF32),
          .adjusted_max = view(2, DType::kF32),
          .argmax = view(3, DType::kI32),
          .sum_exp_t = view(4, DType::kF32),
          .non_finite = view(5, DType::kI32)};
}

int64_t shortlist_capacity(float temperature, float min_p, int32_t top_k, float top_p) {
  const bool is_filtered = min_p > 0 || top_k > 0 || top_p < 1;
  if (temperature <= 0 || !is_filtered) return 1;
  return top_k > 0 && top_k <= kShortlistMaxTopK ? top_k + kShortlistTies : 0;
}

void Ops::join_tiles(const HeadTiles& tiles, TensorView gathered, int64_t vocab_size) {
  const char* op = "join_tiles";
  const VocabShards shards{vocab_size, gathered.rank() == 4 ? gathered.size(0) : 0};
  if (vocab_size < 1 || shards.num_shards < 1 || gathered.dtype() != DType::kI32 || gathered.size(1) != kTileWords ||
      gathered.cols() != shards.most_tiles() || !gathered.contiguous()) {
    fail(op, "gathered {} does not hold the partials of {} ids; expected int32 [ranks, {}, rows, most tiles of a rank]",
         gathered.describe(), vocab_size, kTileWords);
  }
  check_partials(op, tiles, gathered.size(2), shards.num_tiles(), "gathered", gathered);
  if (gathered.size(2) > 0) do_join_tiles(tiles, gathered, shards);
}

void Ops::shortlist(TensorView list, const HeadTiles& tiles, int64_t first_id, int64_t vocab_size,
                    const StepTensors& step, const SamplingTables& tables) {
  const char* op = "shortlist";
  const TensorView& logits = tiles.logits;
  if (logits.rank() != 2 || logits.dtype() != DType::kF32 || first_id < 0 || vocab_size < 1 ||
      (first_id % kVocabTile != 0 && logits.cols() > 0) || first_id + logits.cols() > vocab_size) {
    fail(op, "logits {} from id {} on are no shard of a vocabulary of {}", logits.describe(), first_id, vocab_size);
  }
  check_partials(op, tiles, logits.rows(), tiles_of(vocab_size), "the tiles of logits", logits);
  check_list(op, list, 2, logits);
  Expect{op}.matrix("list", list, logits.rows(), list.cols(), DType::kI32, "logits", logits);
  check_rows(op, step.rows, logits.rows(), logits);
  if (logits.rows() > 0) do_shortlist(list, tiles, first_id, vocab_size, step, tables);
}

bool Ops::shortlists_fit(TensorView lists) {
  check_list("shortlists_fit", lists, 3, lists);
  return lists.rows() == 0 || do_shortlists_fit(lists);
}

void Ops::pick_listed(const PickResult& out, const HeadTiles& tiles, TensorView lists, int64_t vocab_size,
                      const StepTensors& step, const SamplingTables& tables) {
  const char* op = "pick_listed";
  check_list(op, lists, 3, tiles.max);
  if (lists.size(1) != tiles.max.rows() || vocab_size < 1) {
    fail(op, "lists {} do not match max {} of a vocabulary of {}", lists.describe(), tiles.max.describe(), vocab_size);
  }
  check_partials(op, tiles, tiles.max.rows(), tiles_of(vocab_size), "max", tiles.max);
  check_pick(op, out, tiles, step);
  if (tiles.max.rows() > 0) do_pick_listed(out, tiles, lists, vocab_size, step, tables);
}

void Ops::token_logprobs(const LogprobResult& out, const HeadTiles& tiles, int64_t vocab_size, const LogprobRows& rows,
                         const SamplingTables& tables) {
  const char* op = "token_logprobs";
  check_whole_tiles(op, tiles, vocab_size);
  const Expect expect{op};
  const TensorView& logits = tiles.logits;
  const int64_t count = tiles.max.rows();
  expect.vector("rows.token_ids", rows.token_ids, count, DType::kI32, "logits", logits);
  expect.vector("rows.num_top", rows.num_top, count, DType::kI32, "logits", logits);
  expect.vector("rows.listed_slots", rows.listed_slots, count, DType::kI32, "logits", logits);
  expect.vector("logprobs", out.logprobs, count, DType::kF32, "logits", logits);
  expect.vector("ranks", out.ranks, count, DType::kI32, "logits", logits);
  expect.vector("status", out.status, count, DType::kI32, "logits", logits);
  const int64_t width = out.top_ids.rank() == 2 ? out.top_ids.cols() : 0;
  expect.matrix("top_ids", out.top_ids, count, width, DType::kI32, "logits", logits);
  expect.matrix("top_logprobs", out.top_logprobs, count, width, DType::kF32, "top_ids", out.top_ids);
  expect.matrix("top_ranks", out.top_ranks, count, width, DType::kI32, "top_ids", out.top_ids);
  if (count > 0) do_token_logprobs(out, tiles, vocab_size, rows, tables);
}

}  // namespace tokenmill
