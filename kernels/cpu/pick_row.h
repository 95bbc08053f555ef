#pragma once
#include <cstdint>
#include <limits>

#include "kernels/cpu/row_adjustment.h"
#include "kernels/cpu/row_filter.h"
#include "kernels/cpu/row_logits.h"
#include "kernels/cpu/scratch.h"
#include "kernels/ops.h"

// How the token of one row is chosen; semantics in kernels/ops.h. pick() has all logits; shortlist() and pick_listed()
// are its two halves, a rank's share of the logits and what all ranks have listed. Both ways run the code below, and
// what a list leaves out is what a filter removes, so they choose the same id.
namespace tokenmill::cpu {

/// One row: the partials of the whole vocabulary, its parameters, and the raw logits (of some tiles, or none).
struct PickRow {
  const SamplingKernels& kernels;
  const HeadTiles& tiles;
  int64_t row, vocab_size;
  RowLogits raw;
  RowAdjustment adjustment;
  int32_t forced_id;
  float temperature;
  RowFilter filter;
  double uniform;

  int64_t num_tiles() const { return tiles.max.cols(); }
  int64_t tile_size(int64_t tile) const { return std::min(kVocabTile, vocab_size - tile * kVocabTile); }
  float tile_max(int64_t tile) const { return tiles.adjusted_max.row<float>(row)[tile]; }
  /// Adjusted logits of a tile: the raw ones, or made in `room`.
  const float* logits(int64_t tile, float* room) const {
    const float* l = raw.tile(tile);
    if (!adjustment.active()) return l;
    adjustment.apply(kernels, l, tile * kVocabTile, tile_size(tile), room);
    return room;
  }
};

/// What the partials alone say of a row's choice.
struct Choice {
  enum class Kind : uint8_t {
    kNothing,   ///< every id is masked
    kGiven,     ///< id: forced or greedy
    kInTile,    ///< drawn without filters: the id of `tile` where the running weight passes `target`
    kFiltered,  ///< among candidates
  };
  Kind kind = Kind::kNothing;
  float max = -std::numeric_limits<float>::infinity();  ///< the largest adjusted logit, kFiltered and kInTile
  int64_t id = 0;
  int64_t tile = 0;   ///< kGiven, kInTile
  double target = 0;  ///< in weights relative to the tile's maximum
};
Choice make_choice(const PickRow& row);

/// kGiven, kInTile: the id; row.raw holds choice.tile.
int64_t id_of(const PickRow& row, const Choice& choice, Scratch& scratch);

/// Ids that a filter may keep, in ascending order, over the scratch of a thread.
struct Candidates {
  Candidates(const PickRow& row, Scratch& scratch);
  float *room, *scaled, *weight;  ///< room: two tiles. scaled = (x - max) / temperature, weight = exp(scaled)
  int32_t *ids, *indices, *ends;  ///< indices: room for the filter; ends: of each tile's candidates
  int64_t count = 0;
  double total = 0;  ///< the sum of all weights of the row
};

/// Candidates among tiles [begin, end), which row.raw holds; all that the filter keeps there and some others. Returns a
/// border: with top-k, what lies below it is none of the k largest of these tiles.
float collect(const PickRow& row, const Choice& choice, int64_t begin, int64_t end, Candidates& found);
/// Filters the candidates of all tiles and draws one of them.
int64_t draw(const PickRow& row, Candidates& found);

}  // namespace tokenmill::cpu
