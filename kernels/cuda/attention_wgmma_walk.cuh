#pragma once
// One item against the keys and values of one KV head, for attention_paged_wgmma.cu: FlashAttention-3 (Shah et al.,
// arXiv:2407.08608). A producer warp fills a ring of tiles of kTile positions by tensor copies; two consumer warpgroups
// take 64 rows each. A warpgroup starts a tile's scores before the product of the tile before with its values, and
// works on the weights while that product runs; where both have rows, one's weights run under the other's products.
//
// Numbers of a row come out of the same operations in the same order whatever rows and tiles come along, as in
// attention_walk.cuh: scores and outputs are chains of products in one order; the sum of a row is four partial sums, of
// the columns of each thread, added up where a split ends; a tile without visible positions changes nothing.
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/attention_state.cuh"
#include "kernels/cuda/attention_tile_ring.cuh"
#include "kernels/cuda/mma_tile.cuh"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/reduce.cuh"

namespace tokenmill::cuda {

/// Named barriers: the warpgroups' turns at the products, and the threads of one warpgroup.
constexpr int kTurnBarrier = 1, kGroupBarrier = 3;

template <typename T>
struct Wgmma;
template <>
struct Wgmma<__nv_bfloat16> {
  template <int kColumns>
  static __device__ __forceinline__ void scores(float (&d)[kColumns / 2], uint64_t a, uint64_t b, bool accumulate) {
    ptx::wgmma_bf16<kColumns, false, false>(d, a, b, accumulate);
  }
  template <int kColumns>
  static __device__ __forceinline__ void values(float (&d)[kColumns / 2], const uint32_t (&a)[4], uint64_t b) {
    ptx::wgmma_bf16<kColumns, true>(d, a, b, true);
  }
  static __device__ __forceinline__ float2 unpack(uint32_t bits) {
    __nv_bfloat162 pair;
    memcpy(static_cast<void*>(&pair), &bits, sizeof(pair));
    return __bfloat1622float2(pair);
  }
};
template <>
struct Wgmma<__half> {
  template <int kColumns>
  static __device__ __forceinline__ void scores(float (&d)[kColumns / 2], uint64_t a, uint64_t b, bool accumulate) {
    ptx::wgmma_f16<kColumns, false, false>(d, a, b, accumulate);
  }
  template <int kColumns>
  static __device__ __forceinline__ void values(float (&d)[kColumns / 2], const uint32_t (&a)[4], uint64_t b) {
    ptx::wgmma_f16<kColumns, true>(d, a, b, true);
  }
  static __device__ __forceinline__ float2 unpack(uint32_t bits) {
    __half2 pair;
    memcpy(static_cast<void*>(&pair), &bits, sizeof(pair));
    return __half22float2(pair);
  }
};

/// One consumer warpgroup's walk over an item.
template <typename T, int kDim>
struct WgmmaWalk {
  using Block = WgmmaBlock<kDim>;
  static constexpr int kTile = Block::kTile, kSteps = kTile / 16;
  static constexpr int kSplitTiles = TileRange<T, kDim>::kSplitTiles;
  /// What a thread holds of two rows (tile_row): outputs as wgmma lays them out, sums of its own columns.
  struct State {
    float out[kDim / 2];
    float sum[2], max[2];
  };

  const AttentionRows<T, kDim>& rows;
  unsigned char* shared;
  float* folded;  // this thread's, kConsumers * 128 floats apart
  int group, lane, warp;
  bool takes_turns;
  VisibleRange visible;

  __device__ WgmmaWalk(const AttentionRows<T, kDim>& item_rows, unsigned char* memory, float* waiting)
      : rows(item_rows),
        shared(memory),
        folded(waiting),
        group(static_cast<int>(threadIdx.x) / 128 - 1),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(static_cast<int>(threadIdx.x) / 32 % 4),
        takes_turns(item_rows.item.num_rows > 64),
        visible(item_rows, first_row(item_rows, group), last_row(item_rows, group), {tile_row(0), tile_row(1)}) {}

  static __device__ int first_row(const AttentionRows<T, kDim>& rows, int group) {
    return 64 * group < rows.item.num_rows ? 64 * group : 0;
  }
  static __device__ int last_row(const AttentionRows<T, kDim>& rows, int group) {
    const int last = 64 * group + 63, of_all = rows.item.num_rows - 1;
    return last < of_all ? last : of_all;
  }
  /// The item's row that is this thread's row r.
  __device__ __forceinline__ int tile_row(int r) const { return 64 * group + 16 * warp + lane / 4 + 8 * r; }
  __device__ __forceinline__ unsigned char* queries() const {
    return shared + Block::kQueries + group * Block::kQueryBytes;
  }

  // Group 1's arrival before all items is group 0's first turn; its word behind its last turn of an item is group 0's
  // first turn in the next one, and behind all items close_turns() takes it. An arrival for each item would not do: it
  // may come while warps of group 0 still wait for the last word of the item before, and count for that.
  static __device__ __forceinline__ void open_turns() {
    if (threadIdx.x >= 256) ptx::named_barrier_arrive(kTurnBarrier, 256);
  }
  static __device__ __forceinline__ void close_turns() {
    if (threadIdx.x < 256) ptx::named_barrier_sync(kTurnBarrier, 256);
  }
  __device__ __forceinline__ void begin_turn() const {
    if (takes_turns) ptx::named_barrier_sync(kTurnBarrier + group, 256);
  }
  __device__ __forceinline__ void end_turn() const {
    if (takes_turns) ptx::named_barrier_arrive(kTurnBarrier + 1 - group, 256);
  }

  __device__ void load_queries(bool wide) const {
    constexpr int kUnits = kDim / 8;
    ptx::named_barrier_sync(kGroupBarrier + group, 128);  // all warps are done with the item before
    for (int i = static_cast<int>(threadIdx.x) % 128; i < 64 * kUnits; i += 128) {
      const int row = i / kUnits, unit = i % kUnits;
      unsigned char* to = queries() + unit / 8 * Block::kQueryHalfBytes + row * 128;
      *reinterpret_cast<uint4*>(to + (unit % 8 ^ row % 8) * 16) = rows.query_chunk(64 * group + row, unit, wide);
    }
    ptx::fence_proxy_async();
    ptx::named_barrier_sync(kGroupBarrier + group, 128);
  }

  /// Starts the scores of a tile.
  __device__ __forceinline__ void start_scores(float (&s)[kTile / 2], int stage) const {
    ptx::wgmma_fence();
    GPU_UNROLL for (int k = 0; k < kDim / 16; ++k) {
      const uint64_t a = ptx::swizzle128_descriptor(queries() + k / 4 * Block::kQueryHalfBytes + k % 4 * 32);
      const uint64_t b =
          ptx::swizzle128_descriptor(Block::keys(shared, stage) + k / 4 * Block::kHalfBytes + k % 4 * 32);
      Wgmma<T>::template scores<kTile>(s, a, b, k > 0);
    }
    ptx::wgmma_commit();
  }
  /// Starts the product with a tile's values.
  __device__ __forceinline__ void start_values(State& state, const uint32_t (&p)[kSteps][4], int stage) const {
    ptx::wgmma_fence();
    GPU_UNROLL for (int k = 0; k < kSteps; ++k) {
      const uint64_t b =
          ptx::swizzle128_descriptor(Block::values(shared, stage) + k * (16 * 128), 1024, Block::kHalfBytes);
      Wgmma<T>::template values<kDim>(state.out, p[k], b);
    }
    ptx::wgmma_commit();
  }

  /// Caps scores, and makes them minus infinity where a row does not see the position.
  __device__ __forceinline__ void mask(float (&s)[kTile / 2], int tile) const {
    const AttentionParams& params = rows.call.params;
    if (params.softcap > 0) {
      const float cap = params.softcap, scale = params.scale / cap;
      GPU_UNROLL for (int i = 0; i < kTile / 2; ++i) s[i] = cap * tanhf(s[i] * scale);
    }
    const int base = tile * kTile;
    if (visible.all_see(base, base + kTile)) return;
    GPU_UNROLL for (int i = 0; i < kTile / 2; ++i) {
      if (!visible.sees(i / 2 % 2, base + 8 * (i / 4) + 2 * (lane % 4) + i % 2)) s[i] = kNothingSeen;
    }
  }

  /// Turns scores into weights 2^(score - maximum), with the tile's maxima taken into the state; keep: what the state's
  /// outputs and sums are to be multiplied with.
  __device__ __forceinline__ void weigh(float (&s)[kTile / 2], State& state, float (&keep)[2]) const {
    const float factor = score_factor(rows.call.params);
    GPU_UNROLL for (int r = 0; r < 2; ++r) {
      float top = kNothingSeen;
      GPU_UNROLL for (int i = 0; i < kTile / 4; ++i) top = fmaxf(top, s[i / 2 * 4 + 2 * r + i % 2]);
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
      const float max = fmaxf(state.max[r], top), base = max == kNothingSeen ? 0.0f : max;
      const float shift = -(base * factor);
      keep[r] = ptx::exp2((state.max[r] - base) * factor);
      state.max[r] = max;
      GPU_UNROLL for (int i = 0; i < kTile / 4; ++i) {
        float& score = s[i / 2 * 4 + 2 * r + i % 2];
        score = ptx::exp2(fmaf(score, factor, shift));
      }
    }
  }
  /// The weights rounded to T, as the A operand of the second product, and their sums.
  __device__ __forceinline__ void pack(uint32_t (&p)[kSteps][4], const float (&s)[kTile / 2], State& state,
                                       const float (&keep)[2]) const {
    float sum[2] = {0, 0};
    GPU_UNROLL for (int k = 0; k < kSteps; ++k) {
      GPU_UNROLL for (int i = 0; i < 4; ++i) {
        p[k][i] = Mma<T>::pack(s[8 * k + 2 * i], s[8 * k + 2 * i + 1]);
        const float2 rounded = Wgmma<T>::unpack(p[k][i]);
        sum[i % 2] += rounded.x + rounded.y;
      }
    }
    GPU_UNROLL for (int r = 0; r < 2; ++r) state.sum[r] = fmaf(state.sum[r], keep[r], sum[r]);
    GPU_UNROLL for (int i = 0; i < kDim / 2; ++i) state.out[i] *= keep[i / 2 % 2];
  }

  /// The state of tiles [begin, end), which are of one split; the ring stands at the first.
  __device__ __forceinline__ void walk(State& state, TileRing<kDim>& ring, int begin, int end) const {
    GPU_UNROLL for (int i = 0; i < kDim / 2; ++i) state.out[i] = 0;
    GPU_UNROLL for (int r = 0; r < 2; ++r) {
      state.sum[r] = 0;
      state.max[r] = kNothingSeen;
    }
    float s[kTile / 2], keep[2];
    uint32_t p[kSteps][4];
    ring.wait_filled(true, ring.tile);
    begin_turn();
    start_scores(s, ring.stage_of(ring.tile));
    end_turn();
    ptx::wgmma_wait<0>();
    ptx::settle(s);
    ring.release(true, ring.tile);
    mask(s, begin);
    weigh(s, state, keep);
    pack(p, s, state, keep);
    GPU_NO_UNROLL for (int tile = begin + 1; tile < end; ++tile) {
      const int n = ring.tile;
      ring.wait_filled(true, n + 1);
      begin_turn();
      start_scores(s, ring.stage_of(n + 1));
      ring.wait_filled(false, n);
      start_values(state, p, ring.stage_of(n));
      end_turn();
      ptx::wgmma_wait<1>();
      ptx::settle(s);
      ring.release(true, n + 1);
      mask(s, tile);
      weigh(s, state, keep);
      ptx::wgmma_wait<0>();
      ptx::settle(state.out);
      ring.release(false, n);
      pack(p, s, state, keep);
      ++ring.tile;
    }
    ring.wait_filled(false, ring.tile);
    start_values(state, p, ring.stage_of(ring.tile));
    ptx::wgmma_wait<0>();
    ptx::settle(state.out);
    ring.release(false, ring.tile);
    ++ring.tile;
    GPU_UNROLL for (int r = 0; r < 2; ++r) {
      state.sum[r] += __shfl_xor_sync(kAllLanes, state.sum[r], 1);
      state.sum[r] += __shfl_xor_sync(kAllLanes, state.sum[r], 2);
    }
  }

  /// Takes a split that is complete into those before it, which wait in memory meanwhile (registers for both would
  /// leave too few for the products). first, last: of the item's splits.
  __device__ __forceinline__ void fold(State& split, bool first, bool last) const {
    constexpr int kStride = 128 * Block::kConsumers, kOut = kDim / 2;
    const float factor = score_factor(rows.call.params);
    const auto before = [&](int i) { return first ? 0.0f : folded[i * kStride]; };
    GPU_UNROLL for (int r = 0; r < 2; ++r) {
      const FoldWeights weights(first ? kNothingSeen : before(kOut + r), split.max[r], factor);
      split.max[r] = weights.top;
      split.sum[r] = weights.fold(before(kOut + 2 + r), split.sum[r]);
      GPU_UNROLL for (int i = 0; i < kOut; ++i) {
        if (i / 2 % 2 == r) split.out[i] = weights.fold(before(i), split.out[i]);
      }
    }
    if (last) return;
    GPU_UNROLL for (int i = 0; i < kOut; ++i) folded[i * kStride] = split.out[i];
    GPU_UNROLL for (int r = 0; r < 2; ++r) {
      folded[(kOut + r) * kStride] = split.max[r];
      folded[(kOut + 2 + r) * kStride] = split.sum[r];
    }
  }

  __device__ __forceinline__ void store_out(const State& state) const {
    GPU_UNROLL for (int r = 0; r < 2; ++r) {
      if (tile_row(r) >= rows.item.num_rows) continue;
      T* out = rows.out_of(tile_row(r)) + 2 * (lane % 4);
      const float scale = 1.0f / state.sum[r];
      GPU_UNROLL for (int n = 0; n < kDim / 8; ++n) {
        out[8 * n] = narrow<T>(state.out[4 * n + 2 * r] * scale);
        out[8 * n + 1] = narrow<T>(state.out[4 * n + 2 * r + 1] * scale);
      }
    }
  }
  __device__ __forceinline__ void store_parts(const State& state, const AttentionParts& parts) const {
    GPU_UNROLL for (int r = 0; r < 2; ++r) {
      if (tile_row(r) >= rows.item.num_rows) continue;
      const int64_t part = parts.of(rows.item, tile_row(r), rows.kv_head, rows.call.layout.num_kv_heads);
      float* out = parts.outs + part * kDim + 2 * (lane % 4);
      GPU_UNROLL for (int n = 0; n < kDim / 8; ++n) {
        *reinterpret_cast<float2*>(out + 8 * n) = make_float2(state.out[4 * n + 2 * r], state.out[4 * n + 2 * r + 1]);
      }
      if (lane % 4 == 0) parts.ends[part] = make_float2(state.max[r], state.sum[r]);
    }
  }

  /// A warpgroup without rows lets the tiles pass: the ring waits for all consumers.
  __device__ __forceinline__ void pass(TileRing<kDim>& ring, const TileRange<T, kDim>& tiles) const {
    GPU_NO_UNROLL for (int tile = tiles.begin; tile < tiles.end; ++tile, ++ring.tile) {
      for (const bool is_key : {true, false}) {
        ring.wait_filled(is_key, ring.tile);
        ring.release(is_key, ring.tile);
      }
    }
  }

  __device__ void consume(TileRing<kDim>& ring, const AttentionParts& parts, bool wide) const {
    const TileRange<T, kDim> tiles(rows);
    if (64 * group >= rows.item.num_rows) return pass(ring, tiles);
    load_queries(wide);
    State state;
    GPU_NO_UNROLL for (int begin = tiles.begin; begin < tiles.end;) {
      const int border = (begin / kSplitTiles + 1) * kSplitTiles, end = border < tiles.end ? border : tiles.end;
      walk(state, ring, begin, end);
      if (rows.item.split < 0) fold(state, begin == tiles.begin, end == tiles.end);
      begin = end;
    }
    if (rows.item.split < 0) {
      store_out(state);
    } else {
      store_parts(state, parts);
    }
  }
};

}  // namespace tokenmill::cuda
