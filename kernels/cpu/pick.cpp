// pick; semantics in kernels/ops.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/raw_softmax.h"
#include "kernels/cpu/row_adjustment.h"
#include "kernels/cpu/row_filter.h"
#include "kernels/random.h"

namespace tokenmill::cpu {
namespace {

/// One row of pick: its tiles, its parameters.
struct PickRow {
  const SamplingKernels& kernels;
  const HeadTiles& tiles;
  int64_t row, vocab_size;
  RowAdjustment adjustment;
  int32_t forced_id;
  float temperature;
  RowFilter filter;
  double uniform;

  int64_t num_tiles() const { return tiles.max.cols(); }
  int64_t tile_size(int64_t tile) const { return std::min(kVocabTile, vocab_size - tile * kVocabTile); }
  float tile_max(int64_t tile) const { return tiles.adjusted_max.row<float>(row)[tile]; }
  /// Adjusted logits of ids [first_id, first_id + count): the raw ones, or made in `room`.
  const float* logits(int64_t first_id, int64_t count, float* room) const {
    const float* raw = tiles.logits.row<float>(row) + first_id;
    if (!adjustment.active()) return raw;
    adjustment.apply(kernels, raw, first_id, count, room);
    return room;
  }
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
  float* weight = scratch.get(2 * kVocabTile);
  const float* sum_exp_t = row.tiles.sum_exp_t.row<float>(row.row);
  const auto scale = [&](int64_t tile) { return std::exp(double{row.tile_max(tile) - max} / row.temperature); };
  return invert_tiles(
      row.num_tiles(), row.uniform, [&](int64_t tile) { return sum_exp_t[tile] * scale(tile); },
      [&](int64_t tile, double rest) {
        const int64_t count = row.tile_size(tile);
        const float* logits = row.logits(tile * kVocabTile, count, weight + kVocabTile);
        row.kernels.weights(logits, count, row.tile_max(tile), row.temperature, nullptr, weight);
        return tile * kVocabTile + invert(weight, count, rest / scale(tile));
      });
}

/// The k largest values so far: a heap with the smallest in front. k 0: holds nothing.
class Largest {
 public:
  static constexpr int32_t kMost = 256;
  explicit Largest(int64_t k) : k_(k) {}
  /// No value below it is among the k largest.
  float border() const { return k_ > 0 && size_ == k_ ? heap_[0] : -std::numeric_limits<float>::infinity(); }
  void add(float value) {
    if (k_ == 0 || (size_ == k_ && !(value > heap_[0]))) return;
    if (size_ == k_) std::pop_heap(heap_.begin(), heap_.begin() + size_--, std::greater<>());
    heap_[static_cast<size_t>(size_++)] = value;
    std::push_heap(heap_.begin(), heap_.begin() + size_, std::greater<>());
  }

 private:
  std::array<float, kMost> heap_;
  int64_t k_, size_ = 0;
};

/// The ids that a filter may keep, in ascending order: those whose scaled logit reaches low and, of top-k, the largest
/// found before them. A tile that cannot have any is passed over.
struct Candidates {
  float *room, *scaled, *weight;  // room: two tiles
  int32_t* ids;
  float low;
  Largest largest;
  int64_t count = 0;

  void add_tile(const PickRow& row, int64_t tile, float max) {
    if ((row.tile_max(tile) - max) / row.temperature < std::max(low, largest.border())) return;
    const int64_t size = row.tile_size(tile), first = tile * kVocabTile;
    float* tile_scaled = room + kVocabTile;
    row.kernels.weights(row.logits(first, size, tile_scaled), size, max, row.temperature, tile_scaled, room);
    for (int64_t i = 0; i < size; ++i) {
      if (!(tile_scaled[i] >= std::max(low, largest.border()))) continue;
      largest.add(tile_scaled[i]);
      ids[count] = static_cast<int32_t>(first + i);
      scaled[count] = tile_scaled[i];
      weight[count++] = room[i];
    }
  }
};

int64_t sample_filtered(const PickRow& row, float max, Scratch& scratch) {
  const int64_t n = row.vocab_size, num_tiles = row.num_tiles();
  const float* sum_exp_t = row.tiles.sum_exp_t.row<float>(row.row);
  double total = 0;
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    total += sum_exp_t[tile] * std::exp(double{row.tile_max(tile) - max} / row.temperature);
  }
  float* room = scratch.get(pick_scratch_floats(n));
  float* arrays = room + 2 * kVocabTile;
  auto* indices = reinterpret_cast<int32_t*>(arrays + 3 * n);
  int32_t* ends = indices + n;  // of each tile's candidates
  // A larger k is found by the filter's own histogram.
  Candidates found{.room = room,
                   .scaled = arrays,
                   .weight = arrays + n,
                   .ids = reinterpret_cast<int32_t*>(arrays + 2 * n),
                   .low = lower_bound(row.filter, n, total),
                   .largest = Largest(row.filter.top_k <= Largest::kMost ? std::max(0, row.filter.top_k) : 0)};
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    found.add_tile(row, tile, max);
    ends[tile] = static_cast<int32_t>(found.count);
  }
  apply_filter(row.filter, found.scaled, found.weight, found.count, total, indices);
  const auto begin = [&](int64_t tile) { return tile == 0 ? int64_t{0} : int64_t{ends[tile - 1]}; };
  const auto mass = [&](int64_t tile) {
    double sum = 0;
    for (int64_t i = begin(tile); i < ends[tile]; ++i) sum += found.weight[i];
    return sum;
  };
  return invert_tiles(num_tiles, row.uniform, mass, [&](int64_t tile, double rest) {
    const int64_t at = invert(found.weight + begin(tile), ends[tile] - begin(tile), rest);
    return int64_t{found.ids[begin(tile) + at]};
  });
}

/// The id that the row's adjusted logits and parameters give; -1 when every id is masked.
int64_t choose(const PickRow& row, Scratch& scratch) {
  if (row.forced_id >= 0) return row.forced_id;
  float max = -std::numeric_limits<float>::infinity();
  int64_t best = -1;
  for (int64_t tile = 0; tile < row.num_tiles(); ++tile) {
    if (row.tile_max(tile) > max) {
      max = row.tile_max(tile);
      best = row.tiles.argmax.row<int32_t>(row.row)[tile];
    }
  }
  if (best < 0 || row.temperature <= 0) return best;
  const int64_t id = row.filter.active() ? sample_filtered(row, max, scratch) : sample_unfiltered(row, max, scratch);
  return id < 0 ? best : id;
}

Picked pick_row(const PickRow& row, Scratch& scratch) {
  const RawSoftmax softmax(row.tiles, row.row);
  if (!softmax.finite) return {.id = 0, .logprob = 0, .status = 1};
  const int64_t id = choose(row, scratch);
  if (id < 0) return {.id = 0, .logprob = 0, .status = 2};
  return {.id = static_cast<int32_t>(id),
          .logprob = softmax.logprob(row.tiles.logits.row<float>(row.row)[id]),
          .status = 0};
}

}  // namespace

void CpuOps::do_pick(const PickResult& out, const HeadTiles& tiles, int64_t vocab_size, const StepTensors& step,
                     const SamplingTables& tables) {
  stream_.submit([=, this] {
    const LogitsRows& rows = step.rows;
    const int64_t num_rows = tiles.logits.rows();
    team_.run_sized(num_rows * vocab_size / 16, [&](int thread) {
      const auto range = team_.share(num_rows, thread);
      for (int64_t r = range.begin; r < range.end; ++r) {
        const int64_t slot = rows.slots.as<int32_t>()[r], token = rows.tokens.as<int32_t>()[r];
        const auto key = static_cast<uint64_t>(tables.key.as<int64_t>()[slot]);
        const PickRow row{
            sampling_kernels(isa_),
            tiles,
            r,
            vocab_size,
            row_adjustment(rows, r, tables),
            rows.forced_ids.as<int32_t>()[r],
            tables.temperature.as<float>()[slot],
            {tables.min_p.as<float>()[slot], tables.top_k.as<int32_t>()[slot], tables.top_p.as<float>()[slot]},
            uniform(key, step.positions.as<int64_t>()[token] + 1)};
        const Picked picked = pick_row(row, thread_scratch(thread));
        out.token_ids.as<int32_t>()[r] = picked.id;
        out.logprobs.as<float>()[r] = picked.logprob;
        out.status.as<int32_t>()[r] = picked.status;
        tables.last_token.as<int32_t>()[slot] = picked.id;
        if (picked.status == 0 && row.adjustment.counts != nullptr) ++tables.counts.row<int32_t>(slot)[picked.id];
      }
    });
  });
}

}  // namespace tokenmill::cpu
