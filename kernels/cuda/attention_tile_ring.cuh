#pragma once
// The ring of tiles of keys and values in attention_paged_wgmma.cu, and the producer warp that fills it.
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/ptx.h"

namespace tokenmill::cuda {

/// Sizes of a block. Shared memory: stages of (keys, values), each warpgroup's queries, barriers. A tile of keys,
/// values or queries is halves of 64 dimensions, rows of 128 swizzled bytes.
template <int kDim>
struct WgmmaBlock {
  static constexpr int kConsumers = 2, kRows = 64 * kConsumers;
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kTile = 128, kSplit = 1024;  // positions
  static constexpr int kStages = 2;
  // Of a thread, and such that nothing is spilled: 128 x (producer + consumers x consumer) are at most 65,536.
  static constexpr int kProducerRegisters = kDim == 64 ? 56 : 40, kConsumerRegisters = kDim == 64 ? 224 : 232;
  static constexpr int kHalves = kDim / 64;
  static constexpr int kHalfBytes = kTile * 128, kTileBytes = kHalves * kHalfBytes;
  static constexpr int kQueryHalfBytes = 64 * 128, kQueryBytes = kHalves * kQueryHalfBytes;
  static constexpr int kQueries = 2 * kStages * kTileBytes;
  static constexpr int kBarriers = kQueries + kConsumers * kQueryBytes;
  static constexpr int kSharedBytes = kBarriers + 4 * kStages * static_cast<int>(sizeof(uint64_t));
  static constexpr int kFoldedFloats = kDim / 2 + 4;  // of a consumer thread
  static_assert(kDim % 64 == 0);

  static __device__ unsigned char* keys(unsigned char* shared, int stage) { return shared + 2 * stage * kTileBytes; }
  static __device__ unsigned char* values(unsigned char* shared, int stage) { return keys(shared, stage) + kTileBytes; }
};

/// The ring's barriers. Keys and values have their own, so that scores begin before the values have come. `filled`
/// counts the producer's lanes and their bytes, `free` the consumers' warps.
template <int kDim>
struct TileRing {
  using Block = WgmmaBlock<kDim>;
  uint64_t* barriers;
  int tile = 0;  // tiles so far, of all items

  __device__ uint64_t* filled(bool is_key, int stage) const { return barriers + 2 * stage + (is_key ? 0 : 1); }
  __device__ uint64_t* free(bool is_key, int stage) const { return filled(is_key, stage) + 2 * Block::kStages; }
  __device__ void init() const {
    for (int stage = 0; stage < Block::kStages; ++stage) {
      for (const bool is_key : {true, false}) {
        ptx::mbarrier_init(filled(is_key, stage), 32);
        ptx::mbarrier_init(free(is_key, stage), 4 * Block::kConsumers);
      }
    }
  }
  static __device__ __forceinline__ int stage_of(int tile) { return tile % Block::kStages; }
  static __device__ __forceinline__ int parity_of(int tile) { return tile / Block::kStages % 2; }
  __device__ __forceinline__ void wait_filled(bool is_key, int n) const {
    ptx::mbarrier_wait(filled(is_key, stage_of(n)), parity_of(n));
  }
  /// A consumer's warp has read the tile.
  __device__ __forceinline__ void release(bool is_key, int n) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(free(is_key, stage_of(n)));
  }
  __device__ __forceinline__ void wait_free(bool is_key, int n) const {
    ptx::mbarrier_wait(free(is_key, stage_of(n)), parity_of(n) ^ 1);
  }
};

/// Tiles [begin, end) of an item's positions: all that its rows see, or those in its split.
template <typename T, int kDim>
struct TileRange {
  using Block = WgmmaBlock<kDim>;
  static constexpr int kSplitTiles = Block::kSplit / Block::kTile;
  int begin, end;
  __device__ explicit TileRange(const AttentionRows<T, kDim>& rows) {
    begin = rows.low / Block::kTile;
    end = (rows.high + Block::kTile - 1) / Block::kTile;
    if (rows.item.split < 0) return;
    const int first = rows.item.split * kSplitTiles;
    begin = begin > first ? begin : first;
    end = end < first + kSplitTiles ? end : first + kSplitTiles;
  }
};

/// The producer warp. Tensor copies take 16 positions of 64 dimensions: all of one block (block sizes are multiples of
/// 16).
template <typename T, int kDim>
struct TileProducer {
  using Block = WgmmaBlock<kDim>;
  static constexpr int kRun = 16, kRuns = Block::kTile / kRun, kRunBytes = kRun * 128;
  const AttentionRows<T, kDim>& rows;
  const CUtensorMap* pages;  // rows of kDim elements, boxes of 16 x 64
  int64_t first_row;         // of block 0's first key of this layer in the map
  unsigned char* shared;

  __device__ __forceinline__ int lane() const { return static_cast<int>(threadIdx.x) % 32; }
  __device__ __forceinline__ bool any_seen(int base) const { return base < rows.high && base + kRun > rows.low; }
  __device__ __forceinline__ bool all_seen(int base) const { return base >= rows.low && base + kRun <= rows.high; }

  /// Each lane one box, then its arrival. Keys: whatever holds a position that is seen, scores of others are masked.
  /// Values: runs that are seen in whole.
  __device__ __forceinline__ void copy(const TileRing<kDim>& ring, bool is_key, int tile, int n) const {
    const int run = lane() % kRuns, half = lane() / kRuns, base = tile * Block::kTile + run * kRun;
    uint64_t* barrier = ring.filled(is_key, ring.stage_of(n));
    if (half >= Block::kHalves || !(is_key ? any_seen(base) : all_seen(base))) {
      ptx::mbarrier_arrive(barrier);
      return;
    }
    unsigned char* to = (is_key ? Block::keys(shared, ring.stage_of(n)) : Block::values(shared, ring.stage_of(n))) +
                        half * Block::kHalfBytes + run * kRunBytes;
    const int64_t row = first_row + (rows.keys_at(base) + (is_key ? 0 : rows.key_to_value())) / kDim;
    ptx::mbarrier_arrive_expect_tx(barrier, kRunBytes);
    ptx::tensor_load(to, pages, {64 * half, static_cast<int>(row)}, barrier);
  }

  /// The other runs of values. What no row sees becomes zeros: its weights are zeros, and stale memory may hold NaN.
  __device__ __forceinline__ void fill_values(int tile, int stage) const {
    constexpr int kUnits = kDim / 8;  // of 16 bytes in a row
    bool any = false;
    GPU_NO_UNROLL for (int run = 0; run < kRuns; ++run) {
      const int base = tile * Block::kTile + run * kRun;
      if (all_seen(base)) continue;
      any = true;
      const T* from = rows.call.pages + (any_seen(base) ? rows.keys_at(base) + rows.key_to_value() : 0);
      GPU_NO_UNROLL for (int i = lane(); i < kRun * kUnits; i += 32) {
        const int row = i / kUnits, unit = i % kUnits, p = base + row;
        uint4 bits = {0, 0, 0, 0};
        if (p >= rows.low && p < rows.high) bits = *reinterpret_cast<const uint4*>(from + row * kDim + unit * 8);
        unsigned char* to = Block::values(shared, stage) + unit / 8 * Block::kHalfBytes + run * kRunBytes + row * 128;
        *reinterpret_cast<uint4*>(to + (unit % 8 ^ row % 8) * 16) = bits;
      }
    }
    if (any) ptx::fence_proxy_async();
  }

  __device__ void produce(TileRing<kDim>& ring) const {
    const TileRange<T, kDim> tiles(rows);
    GPU_NO_UNROLL for (int tile = tiles.begin; tile < tiles.end; ++tile, ++ring.tile) {
      const int n = ring.tile;
      ring.wait_free(true, n);
      copy(ring, true, tile, n);
      ring.wait_free(false, n);
      fill_values(tile, ring.stage_of(n));
      copy(ring, false, tile, n);
    }
  }
};

}  // namespace tokenmill::cuda
