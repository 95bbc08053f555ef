#pragma once
#include <cstdint>

#include "kernels/core/host_device.h"

namespace tokenmill {

/// Vocabulary tiles are absolute: tile i covers ids [i * 1024, (i + 1) * 1024).
constexpr int64_t kVocabTile = 1024;

/// How the ranks of a group share out the ids whose logits they compute: whole tiles in ascending order, numbers of
/// tiles that differ by at most one. A shard may be empty.
struct VocabShards {
  int64_t vocab_size = 0;
  int64_t num_shards = 1;

  TM_HOST_DEVICE constexpr int64_t num_tiles() const { return (vocab_size + kVocabTile - 1) / kVocabTile; }
  TM_HOST_DEVICE constexpr int64_t first_tile(int64_t shard) const { return num_tiles() * shard / num_shards; }
  TM_HOST_DEVICE constexpr int64_t first_id(int64_t shard) const {
    const int64_t id = first_tile(shard) * kVocabTile;
    return id < vocab_size ? id : vocab_size;
  }
  TM_HOST_DEVICE constexpr int64_t num_tiles(int64_t shard) const { return first_tile(shard + 1) - first_tile(shard); }
  TM_HOST_DEVICE constexpr int64_t num_ids(int64_t shard) const { return first_id(shard + 1) - first_id(shard); }
  TM_HOST_DEVICE constexpr int64_t shard_of(int64_t tile) const { return ((tile + 1) * num_shards - 1) / num_tiles(); }
  /// Of the largest shard.
  TM_HOST_DEVICE constexpr int64_t most_tiles() const { return (num_tiles() + num_shards - 1) / num_shards; }
  TM_HOST_DEVICE constexpr int64_t most_ids() const {
    int64_t most = 0;
    for (int64_t shard = 0; shard < num_shards; ++shard) most = num_ids(shard) > most ? num_ids(shard) : most;
    return most;
  }
};

}  // namespace tokenmill
