#pragma once
#include <cstdint>

#include "kernels/ops.h"

namespace tokenmill::cpu {

/// Where the raw logits of one row lie: in one piece from first_tile on, or in the shards of P ranks.
struct RowLogits {
  const float* base = nullptr;
  int64_t first_tile = 0;
  VocabShards shards;
  int64_t shard_stride = 0;  ///< floats between shards

  /// Row r of HeadTiles::logits of a whole vocabulary.
  static RowLogits whole(const TensorView& logits, int64_t r, int64_t vocab_size) {
    if (logits.rank() == 2) return {logits.row<float>(r), 0, {vocab_size, 1}, 0};
    return {logits.row<float>(r), 0, {vocab_size, logits.size(0)}, logits.size(1) * logits.row_stride()};
  }
  /// Of one shard, [R, its ids].
  static RowLogits shard(const TensorView& logits, int64_t r, int64_t first_id, int64_t vocab_size) {
    return {logits.row<float>(r), first_id / kVocabTile, {vocab_size, 1}, 0};
  }

  const float* tile(int64_t t) const {
    if (shards.num_shards == 1) return base + (t - first_tile) * kVocabTile;
    const int64_t shard = shards.shard_of(t);
    return base + shard * shard_stride + (t - shards.first_tile(shard)) * kVocabTile;
  }
  float at(int64_t id) const {
    if (shards.num_shards == 1) return base[id - first_tile * kVocabTile];
    return tile(id / kVocabTile)[id % kVocabTile];
  }
};

}  // namespace tokenmill::cpu
