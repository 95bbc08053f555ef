#include "kernels/cpu/pick_row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

namespace tokenmill::cpu {
namespace {

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

/// Inverse CDF over tiles of mass[tile]: the tile, and how much of its mass lies before the draw. -1: there is no mass.
struct TileDraw {
  int64_t tile = -1;
  double rest = 0;
};
template <typename Mass>
TileDraw invert_tiles(int64_t num_tiles, double u, Mass&& mass) {
  double total = 0;
  for (int64_t t = 0; t < num_tiles; ++t) total += mass(t);
  const double target = u * total;
  double before = 0;
  TileDraw drawn;
  for (int64_t t = 0; t < num_tiles; ++t) {
    const double m = mass(t);
    if (m <= 0) continue;
    if (drawn.tile >= 0) before += mass(drawn.tile);
    drawn.tile = t;
    if (before + m > target) break;
  }
  drawn.rest = target - before;
  return drawn;
}

/// What a tile's weights, relative to its own maximum, count against those relative to max.
double tile_scale(const PickRow& row, int64_t tile, float max) {
  return std::exp(double{row.tile_max(tile) - max} / row.temperature);
}

/// The k largest values so far: a heap with the smallest in front. k 0: holds nothing.
class Largest {
 public:
  static constexpr int32_t kMost = kShortlistMaxTopK;
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

}  // namespace

Choice make_choice(const PickRow& row) {
  Choice choice;
  if (row.forced_id >= 0)
    return {.kind = Choice::Kind::kGiven, .id = row.forced_id, .tile = row.forced_id / kVocabTile};
  for (int64_t tile = 0; tile < row.num_tiles(); ++tile) {
    if (!(row.tile_max(tile) > choice.max)) continue;
    choice.kind = Choice::Kind::kGiven;
    choice.max = row.tile_max(tile);
    choice.tile = tile;
    choice.id = row.tiles.argmax.row<int32_t>(row.row)[tile];
  }
  if (choice.kind == Choice::Kind::kNothing || row.temperature <= 0) return choice;
  if (row.filter.active()) {
    choice.kind = Choice::Kind::kFiltered;
    return choice;
  }
  // Temperature alone: the tile sums of the head are enough to find the tile.
  const float* sum_exp_t = row.tiles.sum_exp_t.row<float>(row.row);
  const TileDraw drawn = invert_tiles(
      row.num_tiles(), row.uniform, [&](int64_t tile) { return sum_exp_t[tile] * tile_scale(row, tile, choice.max); });
  if (drawn.tile < 0) return choice;
  choice.kind = Choice::Kind::kInTile;
  choice.tile = drawn.tile;
  choice.target = drawn.rest / tile_scale(row, drawn.tile, choice.max);
  return choice;
}

int64_t id_of(const PickRow& row, const Choice& choice, Scratch& scratch) {
  if (choice.kind == Choice::Kind::kGiven) return choice.id;
  float* weight = scratch.get(2 * kVocabTile);
  const int64_t count = row.tile_size(choice.tile);
  row.kernels.weights(row.logits(choice.tile, weight + kVocabTile), count, row.tile_max(choice.tile), row.temperature,
                      nullptr, weight);
  const int64_t inside = invert(weight, count, choice.target);
  return inside < 0 ? row.tiles.argmax.row<int32_t>(row.row)[choice.tile] : choice.tile * kVocabTile + inside;
}

Candidates::Candidates(const PickRow& row, Scratch& scratch) {
  const int64_t n = row.vocab_size;
  room = scratch.get(pick_scratch_floats(n));
  scaled = room + 2 * kVocabTile;
  weight = scaled + n;
  ids = reinterpret_cast<int32_t*>(weight + n);
  indices = ids + n;
  ends = indices + n;
}

/// A tile that cannot have any is passed over; so are ids without weight, which change no sum.
float collect(const PickRow& row, const Choice& choice, int64_t begin, int64_t end, Candidates& found) {
  const float* sum_exp_t = row.tiles.sum_exp_t.row<float>(row.row);
  for (int64_t tile = 0; tile < row.num_tiles(); ++tile) {
    found.total += sum_exp_t[tile] * tile_scale(row, tile, choice.max);
  }
  const float low = lower_bound(row.filter, row.vocab_size, found.total);
  // A larger k is found by the filter's own histogram.
  Largest largest(row.filter.top_k <= Largest::kMost ? std::max(0, row.filter.top_k) : 0);
  float* weight = found.room;
  float* scaled = found.room + kVocabTile;
  for (int64_t tile = begin; tile < end; ++tile) {
    if ((row.tile_max(tile) - choice.max) / row.temperature >= std::max(low, largest.border())) {
      const int64_t size = row.tile_size(tile);
      row.kernels.weights(row.logits(tile, scaled), size, choice.max, row.temperature, scaled, weight);
      for (int64_t i = 0; i < size; ++i) {
        if (!(scaled[i] >= std::max(low, largest.border())) || weight[i] <= 0) continue;
        largest.add(scaled[i]);
        found.ids[found.count] = static_cast<int32_t>(tile * kVocabTile + i);
        found.scaled[found.count] = scaled[i];
        found.weight[found.count++] = weight[i];
      }
    }
    found.ends[tile] = static_cast<int32_t>(found.count);
  }
  return largest.border();
}

int64_t draw(const PickRow& row, Candidates& found) {
  apply_filter(row.filter, found.scaled, found.weight, found.count, found.total, found.indices);
  const auto begin = [&](int64_t tile) { return tile == 0 ? int64_t{0} : int64_t{found.ends[tile - 1]}; };
  const TileDraw drawn = invert_tiles(row.num_tiles(), row.uniform, [&](int64_t tile) {
    double sum = 0;
    for (int64_t i = begin(tile); i < found.ends[tile]; ++i) sum += found.weight[i];
    return sum;
  });
  const int64_t first = begin(drawn.tile);
  return found.ids[first + invert(found.weight + first, found.ends[drawn.tile] - first, drawn.rest)];
}

}  // namespace tokenmill::cpu
