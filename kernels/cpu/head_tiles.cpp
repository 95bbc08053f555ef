// lm_head_tiles and the tables per slot and id that it reads; semantics in kernels/ops.h.
#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/core/check.h"
#include "kernels/cpu/cpu_linear.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/row_adjustment.h"

namespace tokenmill::cpu {
namespace {

/// Partials of the tiles inside columns [begin, end) of the shard, for all rows.
struct TileHook {
  const SamplingKernels& kernels;
  const HeadTiles& out;
  int64_t first_id, vocab_size;
  const LogitsRows& rows;
  const SamplingTables& tables;

  TilePartials partials(int64_t r, int64_t column, int64_t count) const {
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    if (count <= 0) return {.max = kLowest, .adjusted_max = kLowest};  // a tile of padding alone
    float temperature = 0;
    if (rows.slots.defined()) temperature = tables.temperature.as<float>()[rows.slots.as<int32_t>()[r]];
    if (temperature <= 0) temperature = 1;
    const float* logits = out.logits.row<float>(r) + column;
    const RowAdjustment adjustment = row_adjustment(rows, r, tables);
    if (!adjustment.active()) return kernels.tile_partials(logits, nullptr, count, temperature);
    alignas(64) float adjusted[kVocabTile];
    adjustment.apply(kernels, logits, first_id + column, count, adjusted);
    return kernels.tile_partials(logits, adjusted, count, temperature);
  }

  void run(int64_t begin, int64_t end) const {
    for (int64_t column = begin; column < end; column += kVocabTile) {
      const int64_t tile = column / kVocabTile, id = first_id + column;
      const int64_t count = std::min({kVocabTile, end - column, vocab_size - id});
      for (int64_t r = 0; r < out.logits.rows(); ++r) {
        const TilePartials p = partials(r, column, count);
        out.max.row<float>(r)[tile] = p.max;
        out.sum_exp.row<float>(r)[tile] = p.sum_exp;
        out.adjusted_max.row<float>(r)[tile] = p.adjusted_max;
        out.argmax.row<int32_t>(r)[tile] = static_cast<int32_t>(id) + p.argmax;
        out.sum_exp_t.row<float>(r)[tile] = p.sum_exp_t;
        out.non_finite.row<int32_t>(r)[tile] = p.non_finite;
      }
    }
  }
};

}  // namespace

void CpuOps::do_lm_head_tiles(const HeadTiles& out, TensorView hidden, const Linear& head, int64_t first_id,
                              int64_t vocab_size, const LogitsRows& rows, const SamplingTables& tables) {
  const auto* own = dynamic_cast<const CpuLinear*>(&head);
  TM_ASSERT(own != nullptr, "a linear of another device");
  const auto multiply = [=, this] {
    const TileHook tiles{sampling_kernels(isa_), out, first_id, vocab_size, rows, tables};
    LinearContext context{team_, thread_scratch_, shared_scratch_};
    const ColumnHook hook{kVocabTile,
                          [](void* self, int64_t begin, int64_t end) { static_cast<TileHook*>(self)->run(begin, end); },
                          const_cast<TileHook*>(&tiles)};
    own->multiply(out.logits, hidden, LinearCall{}, context, hook);
  };
  stream_.submit(multiply, OpKind::kGemm);
}

void CpuOps::do_join_tiles(const HeadTiles& tiles, TensorView gathered, const VocabShards& shards) {
  stream_.submit([=] {
    for (int64_t shard = 0; shard < shards.num_shards; ++shard) {
      const int64_t count = shards.num_tiles(shard), first = shards.first_tile(shard), rows = tiles.max.rows();
      const TensorView words(gathered.as<int32_t>() + shard * kTileWords * rows * gathered.cols(), DType::kI32,
                             {kTileWords, rows, gathered.cols()});
      const HeadTiles part = tiles_of_words({}, words, count);
      for (int64_t r = 0; r < rows; ++r) {
        std::copy_n(part.max.row<float>(r), count, tiles.max.row<float>(r) + first);
        std::copy_n(part.sum_exp.row<float>(r), count, tiles.sum_exp.row<float>(r) + first);
        std::copy_n(part.adjusted_max.row<float>(r), count, tiles.adjusted_max.row<float>(r) + first);
        std::copy_n(part.argmax.row<int32_t>(r), count, tiles.argmax.row<int32_t>(r) + first);
        std::copy_n(part.sum_exp_t.row<float>(r), count, tiles.sum_exp_t.row<float>(r) + first);
        std::copy_n(part.non_finite.row<int32_t>(r), count, tiles.non_finite.row<int32_t>(r) + first);
      }
    }
  });
}

void CpuOps::do_count_tokens(const SamplingTables& tables, int32_t slot, std::span<const int32_t> token_ids,
                             int64_t num_prompt_tokens) {
  stream_.submit([=, ids = std::vector(token_ids.begin(), token_ids.end())] {
    auto* counts = tables.counts.row<int32_t>(slot);
    std::fill_n(counts, tables.counts.cols(), 0);
    const auto end_of_prompt = ids.begin() + num_prompt_tokens;
    for (auto id = ids.begin(); id != end_of_prompt; ++id) counts[*id] |= kInPrompt;
    for (auto id = end_of_prompt; id != ids.end(); ++id) ++counts[*id];
  });
}

void CpuOps::do_set_bias(const SamplingTables& tables, int32_t slot, float fill, std::span<const int32_t> ids,
                         std::span<const float> values) {
  stream_.submit([=, ids = std::vector(ids.begin(), ids.end()), values = std::vector(values.begin(), values.end())] {
    float* bias = tables.bias.row<float>(slot);
    std::fill_n(bias, tables.bias.cols(), fill);
    for (size_t i = 0; i < ids.size(); ++i) bias[ids[i]] = values[i];
  });
}

}  // namespace tokenmill::cpu
