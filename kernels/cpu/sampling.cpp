// lm_head_tiles and pick; semantics in kernels/ops.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/core/check.h"
#include "kernels/cpu/cpu_linear.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/row_filter.h"
#include "kernels/cpu/sampling_kernels.h"
#include "kernels/random.h"

namespace tokenmill::cpu {
namespace {

/// Partials of the tiles inside columns [begin, end) of the shard, for all rows.
struct TileHook {
  const SamplingKernels& kernels;
  const HeadTiles& out;
  int64_t first_id, vocab_size;
  TensorView row_slots;
  const SamplingTables& tables;

  void run(int64_t begin, int64_t end) const {
    for (int64_t column = begin; column < end; column += kVocabTile) {
      const int64_t tile = column / kVocabTile, id = first_id + column;
      const int64_t count = std::min({kVocabTile, end - column, vocab_size - id});
      for (int64_t r = 0; r < out.logits.rows(); ++r) {
        TilePartials p{-std::numeric_limits<float>::infinity(), 0, 0.0f, 0.0f, 0};  // a tile of padding alone
        if (count > 0) {
          const float t = tables.temperature.as<float>()[row_slots.as<int32_t>()[r]];
          p = kernels.tile_partials(out.logits.row<float>(r) + column, count, t > 0 ? t : 1.0f);
        }
        out.max.row<float>(r)[tile] = p.max;
        out.argmax.row<int32_t>(r)[tile] = static_cast<int32_t>(id) + p.argmax;
        out.sum_exp.row<float>(r)[tile] = p.sum_exp;
        out.sum_exp_t.row<float>(r)[tile] = p.sum_exp_t;
        out.non_finite.row<int32_t>(r)[tile] = p.non_finite;
      }
    }
  }
};

/// One row of pick: its tiles, its parameters.
struct PickRow {
  const SamplingKernels& kernels;
  const float* logits;
  const float* tile_max;
  const int32_t* tile_argmax;
  const float* sum_exp;
  const float* sum_exp_t;
  const int32_t* non_finite;
  int64_t num_tiles, vocab_size;
  float temperature;
  RowFilter filter;
  double uniform;

  int64_t tile_size(int64_t tile) const { return std::min(kVocabTile, vocab_size - tile * kVocabTile); }
};

struct Picked {
  int32_t id = 0;
  float logprob = 0;
  int32_t status = 0;
};

/// The first id whose running weight passes target, among count weights; the last with any weight when rounding keeps
/// the sum below. -1 when all are zero.
int64_t invert(const float* weight, int64_t count, double target) {
  double sum = 0;
  int64_t last = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (weight[i] <= 0) continue;
    sum += weight[i];
    last = i;
    if (sum > target) return i;
  }
  return last;
}

/// Inverse CDF over tiles of mass[tile], then inside the tile: weights(tile) gives them in units of mass / scale(tile).
template <typename Mass, typename Inside>
int64_t invert_tiles(int64_t num_tiles, double u, Mass&& mass, Inside&& inside) {
  double total = 0;
  for (int64_t t = 0; t < num_tiles; ++t) total += mass(t);
  const double target = u * total;
  double before = 0;
  int64_t tile = -1;
  for (int64_t t = 0; t < num_tiles; ++t) {
    const double m = mass(t);
    if (m <= 0) continue;
    if (tile >= 0) before += mass(tile);
    tile = t;
    if (before + m > target) break;
  }
  return tile < 0 ? -1 : inside(tile, target - before);
}

/// Temperature alone: the tile sums of the head are enough to find the tile.
int64_t sample_unfiltered(const PickRow& row, float max, Scratch& scratch) {
  float* weight = scratch.get(kVocabTile);
  const auto scale = [&](int64_t tile) { return std::exp(double{row.tile_max[tile] - max} / row.temperature); };
  return invert_tiles(
      row.num_tiles, row.uniform, [&](int64_t tile) { return row.sum_exp_t[tile] * scale(tile); },
      [&](int64_t tile, double rest) {
        const int64_t count = row.tile_size(tile);
        row.kernels.weights(row.logits + tile * kVocabTile, count, row.tile_max[tile], row.temperature, nullptr,
                            weight);
        return tile * kVocabTile + invert(weight, count, rest / scale(tile));
      });
}

int64_t sample_filtered(const PickRow& row, float max, Scratch& scratch) {
  const int64_t n = row.vocab_size;
  float* weight = scratch.get(pick_scratch_floats(n));
  float* scaled = weight + n;
  auto* candidates = reinterpret_cast<int32_t*>(scaled + n);
  auto* sums = reinterpret_cast<double*>(weight + (3 * n + 1) / 2 * 2);
  row.kernels.weights(row.logits, n, max, row.temperature, scaled, weight);
  apply_filter(row.filter, scaled, weight, n, candidates);
  for (int64_t tile = 0; tile < row.num_tiles; ++tile) {
    double sum = 0;
    for (int64_t i = 0; i < row.tile_size(tile); ++i) sum += weight[tile * kVocabTile + i];
    sums[tile] = sum;
  }
  return invert_tiles(
      row.num_tiles, row.uniform, [&](int64_t tile) { return sums[tile]; },
      [&](int64_t tile, double rest) {
        return tile * kVocabTile + invert(weight + tile * kVocabTile, row.tile_size(tile), rest);
      });
}

Picked pick_row(const PickRow& row, Scratch& scratch) {
  float max = -std::numeric_limits<float>::infinity();
  int64_t best = 0;
  for (int64_t tile = 0; tile < row.num_tiles; ++tile) {
    if (row.non_finite[tile] != 0) return {.id = 0, .logprob = 0, .status = 1};
    if (row.tile_max[tile] > max) {
      max = row.tile_max[tile];
      best = row.tile_argmax[tile];
    }
  }
  double sum = 0;
  for (int64_t tile = 0; tile < row.num_tiles; ++tile) {
    if (row.sum_exp[tile] > 0) sum += row.sum_exp[tile] * std::exp(double{row.tile_max[tile]} - max);
  }
  int64_t id = best;
  if (row.temperature > 0) {
    id = row.filter.active() ? sample_filtered(row, max, scratch) : sample_unfiltered(row, max, scratch);
    if (id < 0) id = best;
  }
  const double logprob = double{row.logits[id]} - max - std::log(sum);
  return {.id = static_cast<int32_t>(id), .logprob = static_cast<float>(logprob), .status = 0};
}

}  // namespace

void CpuOps::do_lm_head_tiles(const HeadTiles& out, TensorView hidden, const Linear& head, int64_t first_id,
                              int64_t vocab_size, TensorView row_slots, const SamplingTables& tables) {
  const auto* own = dynamic_cast<const CpuLinear*>(&head);
  TM_ASSERT(own != nullptr, "a linear of another device");
  const auto multiply = [=, this] {
    const TileHook tiles{sampling_kernels(isa_), out, first_id, vocab_size, row_slots, tables};
    LinearContext context{team_, thread_scratch_, shared_scratch_};
    const ColumnHook hook{kVocabTile,
                          [](void* self, int64_t begin, int64_t end) { static_cast<TileHook*>(self)->run(begin, end); },
                          const_cast<TileHook*>(&tiles)};
    own->multiply(out.logits, hidden, LinearCall{}, context, hook);
  };
  stream_.submit(multiply, OpKind::kGemm);
}

void CpuOps::do_pick(const PickResult& out, const HeadTiles& tiles, int64_t vocab_size, const StepTensors& step,
                     const SamplingTables& tables) {
  stream_.submit([=, this] {
    const int64_t rows = tiles.logits.rows(), num_tiles = tiles.max.cols();
    team_.run_sized(rows * vocab_size / 16, [&](int thread) {
      const auto range = team_.share(rows, thread);
      for (int64_t r = range.begin; r < range.end; ++r) {
        const int64_t slot = step.row_slots.as<int32_t>()[r], token = step.logits_rows.as<int32_t>()[r];
        const auto key = static_cast<uint64_t>(tables.key.as<int64_t>()[slot]);
        const PickRow row{
            sampling_kernels(isa_),
            tiles.logits.row<float>(r),
            tiles.max.row<float>(r),
            tiles.argmax.row<int32_t>(r),
            tiles.sum_exp.row<float>(r),
            tiles.sum_exp_t.row<float>(r),
            tiles.non_finite.row<int32_t>(r),
            num_tiles,
            vocab_size,
            tables.temperature.as<float>()[slot],
            {tables.min_p.as<float>()[slot], tables.top_k.as<int32_t>()[slot], tables.top_p.as<float>()[slot]},
            uniform(key, step.positions.as<int64_t>()[token] + 1)};
        const Picked picked = pick_row(row, thread_scratch(thread));
        out.token_ids.as<int32_t>()[r] = picked.id;
        out.logprobs.as<float>()[r] = picked.logprob;
        out.status.as<int32_t>()[r] = picked.status;
        tables.last_token.as<int32_t>()[slot] = picked.id;
      }
    });
  });
}

}  // namespace tokenmill::cpu
