#pragma once
// One row tile against the keys and values of one KV head, for attention_paged_mma.cu: FlashAttention-2 (Dao,
// arXiv:2307.08691) over tiles of kKvTile positions.
//
// Every number of a row comes out of the same operations in the same order whatever the division of warps, the other
// rows of the tile and the tiles that the row does not see: score (row, position) is one chain of products over the
// head; maxima have no order; the sum of a row is one more column of the second product (P times ones); outputs are one
// chain over the tile's positions; a tile without visible positions changes nothing. Products and sums whose fusion
// would be the compiler's choice are written as fmaf.
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/attention_state.cuh"
#include "kernels/cuda/mma_tile.cuh"
#include "kernels/cuda/reduce.cuh"

namespace tokenmill::cuda {

/// The walk of one item. kRowWarps warps take 16 rows each; of these rows, kColumnWarps warps share scores and outputs
/// by columns: all of a small tile's warps, so that decode keeps a whole block busy.
template <typename T, int kDim, int kRowWarps>
struct AttentionWalk {
  using Block = MmaBlock<kDim>;
  static constexpr int kColumnWarps = Block::kWarps / kRowWarps;
  static constexpr int kScoreTiles = kKvTile / 8 / kColumnWarps;
  static constexpr int kOutTiles = kDim / 8 / kColumnWarps;
  using State = RowState<kOutTiles>;

  const AttentionRows<T, kDim>& rows;
  unsigned char* shared;
  float* folded;  // this thread's part of FoldedStates
  int lane, row_warp, column_warp;
  VisibleRange visible;

  __device__ AttentionWalk(const AttentionRows<T, kDim>& item_rows, unsigned char* memory, float* waiting)
      : rows(item_rows),
        shared(memory),
        folded(waiting),
        lane(static_cast<int>(threadIdx.x) % 32),
        row_warp(static_cast<int>(threadIdx.x) / 32 / kColumnWarps),
        column_warp(static_cast<int>(threadIdx.x) / 32 % kColumnWarps),
        visible(item_rows, 0, item_rows.item.num_rows - 1, {tile_row(0), tile_row(1)}) {}

  /// The tile's row that is this thread's row r.
  __device__ __forceinline__ int tile_row(int r) const { return 16 * row_warp + lane / 4 + 8 * r; }
  /// Offsets in shared memory.
  __device__ __forceinline__ int keys(int stage) const { return 2 * stage * Block::kTileBytes; }
  __device__ __forceinline__ int values(int stage) const { return keys(stage) + Block::kTileBytes; }

  __device__ void load_queries(bool wide) const {
    for (int i = static_cast<int>(threadIdx.x); i < 16 * kRowWarps * Block::kChunks; i += Block::kThreads) {
      const int row = i / Block::kChunks, chunk = i % Block::kChunks;
      const int to = chunk_offset<Block::kChunks>(row_offset<Block::kChunks>(Block::kQueries, row), chunk);
      *reinterpret_cast<uint4*>(shared + to) = rows.query_chunk(row, chunk, wide);
    }
  }

  /// Starts the copies of a tile. What no row sees is not read and becomes zeros: its weights are zeros, and stale
  /// memory may hold NaN.
  __device__ __forceinline__ void load_tile(int tile, int stage) const {
    constexpr int kRun = 16;
    const int64_t to_value = rows.key_to_value();
    const T* pages = rows.call.pages;
    GPU_NO_UNROLL for (int run = 0; run < kKvTile / kRun; ++run) {
      const int base = tile * kKvTile + run * kRun;
      const bool any = base < rows.high && base + kRun > rows.low;
      const T* from = any ? pages + rows.keys_at(base) : pages;
      GPU_NO_UNROLL for (int i = static_cast<int>(threadIdx.x); i < kRun * Block::kChunks; i += Block::kThreads) {
        const int row = i / Block::kChunks, chunk = i % Block::kChunks;
        const bool seen = base + row >= rows.low && base + row < rows.high;
        const T* source = seen ? from + row * kDim + chunk * 8 : pages;
        const int to = chunk_offset<Block::kChunks>(row_offset<Block::kChunks>(0, row), chunk) + keys(stage) +
                       run * (kRun * Block::kChunks * 16);
        ptx::cp_async<16>(shared + to, source, seen ? 16 : 0);
        ptx::cp_async<16>(shared + to + Block::kTileBytes, seen ? source + to_value : source, seen ? 16 : 0);
      }
    }
  }

  /// Scores of this warp's rows and columns, capped, minus infinity where a row does not see the position.
  __device__ __forceinline__ void scores(float (&s)[kScoreTiles][4], int tile, int stage) const {
    GPU_UNROLL for (int n = 0; n < kScoreTiles; ++n) { GPU_UNROLL for (int i = 0; i < 4; ++i) s[n][i] = 0; }
    const int query_row = lane_row_a<Block::kChunks>(Block::kQueries, 16 * row_warp, lane);
    const int key_row = lane_row_b<Block::kChunks>(keys(stage), lane);
    GPU_UNROLL for (int pair = 0; pair < kDim / 32; ++pair) {
      uint32_t a[2][4];
      load_a<Block::kChunks>(a[0], shared, query_row, 2 * pair);
      load_a<Block::kChunks>(a[1], shared, query_row, 2 * pair + 1);
      GPU_UNROLL for (int n = 0; n < kScoreTiles; ++n) {
        uint32_t b[4];
        load_b_rows<Block::kChunks>(b, shared, key_row, column_warp * kScoreTiles + n, pair);
        Mma<T>::multiply(s[n], a[0], b[0], b[1]);
        Mma<T>::multiply(s[n], a[1], b[2], b[3]);
      }
    }
    const AttentionParams& params = rows.call.params;
    if (params.softcap > 0) {
      const float cap = params.softcap, scale = params.scale / cap;
      GPU_UNROLL for (int n = 0; n < kScoreTiles; ++n) {
        GPU_UNROLL for (int i = 0; i < 4; ++i) s[n][i] = cap * tanhf(s[n][i] * scale);
      }
    }
    const int base = tile * kKvTile;
    if (visible.all_see(base, base + kKvTile)) return;
    GPU_UNROLL for (int n = 0; n < kScoreTiles; ++n) {
      GPU_UNROLL for (int i = 0; i < 4; ++i) {
        const int p = base + 8 * (column_warp * kScoreTiles + n) + 2 * (lane % 4) + i % 2;
        if (!visible.sees(i / 2, p)) s[n][i] = kNothingSeen;
      }
    }
  }

  /// The rows' maxima over the tile's scores. With several column warps: when it returns, all warps have read the keys.
  __device__ __forceinline__ void tile_maxima(float (&top)[2], const float (&s)[kScoreTiles][4]) const {
    GPU_UNROLL for (int r = 0; r < 2; ++r) {
      top[r] = kNothingSeen;
      GPU_UNROLL for (int n = 0; n < kScoreTiles; ++n) { top[r] = fmaxf(top[r], fmaxf(s[n][2 * r], s[n][2 * r + 1])); }
      top[r] = fmaxf(top[r], __shfl_xor_sync(kAllLanes, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(kAllLanes, top[r], 2));
    }
    if constexpr (kColumnWarps > 1) {
      auto* maxima = reinterpret_cast<float*>(shared + Block::kMaxima) + row_warp * kColumnWarps * 16;
      if (lane % 4 == 0) {
        maxima[column_warp * 16 + lane / 4] = top[0];
        maxima[column_warp * 16 + lane / 4 + 8] = top[1];
      }
      __syncthreads();
      GPU_UNROLL for (int w = 0; w < kColumnWarps; ++w) {
        top[0] = fmaxf(top[0], maxima[w * 16 + lane / 4]);
        top[1] = fmaxf(top[1], maxima[w * 16 + lane / 4 + 8]);
      }
    }
  }

  /// Takes the tile's maxima into the state and turns scores into weights 2^(score - maximum), rounded to T: the A
  /// operand of the second product, whole rows.
  __device__ __forceinline__ void weights(uint32_t (&p)[kKvTile / 16][4], float (&s)[kScoreTiles][4], State& state,
                                          int stage) const {
    float top[2];
    tile_maxima(top, s);
    const float factor = score_factor(rows.call.params);
    GPU_UNROLL for (int r = 0; r < 2; ++r) {
      const float max = fmaxf(state.max[r], top[r]), base = max == kNothingSeen ? 0.0f : max;
      const float keep = ptx::exp2((state.max[r] - base) * factor), shift = -(base * factor);
      state.max[r] = max;
      GPU_UNROLL for (int i = 2 * r; i < 2 * r + 2; ++i) {
        state.sum[i] *= keep;
        GPU_UNROLL for (int n = 0; n < kOutTiles; ++n) state.out[n][i] *= keep;
        GPU_UNROLL for (int n = 0; n < kScoreTiles; ++n) s[n][i] = ptx::exp2(fmaf(s[n][i], factor, shift));
      }
    }
    if constexpr (kColumnWarps == 1) {
      GPU_UNROLL for (int k = 0; k < kKvTile / 16; ++k) {
        GPU_UNROLL for (int i = 0; i < 4; ++i) {
          const float* pair = &s[2 * k + i / 2][2 * (i % 2)];
          p[k][i] = Mma<T>::pack(pair[0], pair[1]);
        }
      }
    } else {
      constexpr int kChunks = kKvTile / 8;
      const int all = keys(stage) + row_warp * (16 * kChunks * 16);  // in place of the keys
      GPU_UNROLL for (int n = 0; n < kScoreTiles; ++n) {
        GPU_UNROLL for (int r = 0; r < 2; ++r) {
          const int row = row_offset<kChunks>(all, lane / 4 + 8 * r);
          const int to = chunk_offset<kChunks>(row, column_warp * kScoreTiles + n) + 4 * (lane % 4);
          *reinterpret_cast<uint32_t*>(shared + to) = Mma<T>::pack(s[n][2 * r], s[n][2 * r + 1]);
        }
      }
      __syncthreads();
      const int row = lane_row_a<kChunks>(all, 0, lane);
      GPU_UNROLL for (int k = 0; k < kKvTile / 16; ++k) load_a<kChunks>(p[k], shared, row, k);
    }
  }

  __device__ __forceinline__ void add_values(State& state, const uint32_t (&p)[kKvTile / 16][4], int stage) const {
    GPU_UNROLL for (int k = 0; k < kKvTile / 16; ++k) {
      Mma<T>::multiply(state.sum, p[k], Mma<T>::kOnes, Mma<T>::kOnes);
    }
    const int value_row = row_offset<Block::kChunks>(values(stage), lane);
    GPU_UNROLL for (int pair = 0; pair < kKvTile / 32; ++pair) {
      GPU_UNROLL for (int n = 0; n < kOutTiles; ++n) {
        uint32_t b[4];
        load_b_columns<Block::kChunks>(b, shared, value_row, column_warp * kOutTiles + n, pair);
        Mma<T>::multiply(state.out[n], p[2 * pair], b[0], b[1]);
        Mma<T>::multiply(state.out[n], p[2 * pair + 1], b[2], b[3]);
      }
    }
  }

  __device__ __forceinline__ void add_tile(State& state, int tile, int stage) const {
    float s[kScoreTiles][4];
    scores(s, tile, stage);
    uint32_t p[kKvTile / 16][4];
    weights(p, s, state, stage);
    add_values(state, p, stage);
  }

  /// Takes a split that is complete into those before it, which wait in `folded` meanwhile: registers for both would
  /// leave too few for the products.
  __device__ __forceinline__ void fold_split(State& split, bool first, bool last) const {
    State all;
    all.clear();
    if (!first) all.load(folded, Block::kThreads);
    all.fold(split, score_factor(rows.call.params));
    if (last) {
      split = all;
    } else {
      all.store(folded, Block::kThreads);
      split.clear();
    }
  }

  /// State after tiles [begin, end). apart: they are one split and stay as they are.
  __device__ __forceinline__ void run(State& state, int begin, int end, bool apart) const {
    state.clear();
    load_tile(begin, 0);
    ptx::cp_async_commit();
    bool first = true;
    for (int tile = begin; tile < end; ++tile) {
      const int stage = (tile - begin) % 2;
      const bool last = tile + 1 == end;
      if (!last) load_tile(tile + 1, 1 - stage);
      ptx::cp_async_commit();
      ptx::cp_async_wait<1>();
      __syncthreads();
      add_tile(state, tile, stage);
      if (!apart && (last || (tile + 1) % (kKvSplit / kKvTile) == 0)) {
        fold_split(state, first, last);
        first = false;
      }
      __syncthreads();  // the stage may be written again
    }
  }

  __device__ __forceinline__ void store_out(const State& state) const {
    GPU_UNROLL for (int r = 0; r < 2; ++r) {
      const int row = tile_row(r);
      if (row >= rows.item.num_rows) continue;
      T* out = rows.out_of(row);
      const float scale = 1.0f / state.sum[2 * r];
      GPU_UNROLL for (int n = 0; n < kOutTiles; ++n) {
        T* pair = out + 8 * (column_warp * kOutTiles + n) + 2 * (lane % 4);
        pair[0] = narrow<T>(state.out[n][2 * r] * scale);
        pair[1] = narrow<T>(state.out[n][2 * r + 1] * scale);
      }
    }
  }

  __device__ __forceinline__ void store_parts(const State& state, const AttentionParts& parts) const {
    GPU_UNROLL for (int r = 0; r < 2; ++r) {
      const int row = tile_row(r);
      if (row >= rows.item.num_rows) continue;
      const int64_t part = parts.of(rows.item, row, rows.kv_head, rows.call.layout.num_kv_heads);
      float* out = parts.outs + part * kDim + 2 * (lane % 4);
      GPU_UNROLL for (int n = 0; n < kOutTiles; ++n) {
        float* pair = out + 8 * (column_warp * kOutTiles + n);
        *reinterpret_cast<float2*>(pair) = make_float2(state.out[n][2 * r], state.out[n][2 * r + 1]);
      }
      if (column_warp == 0 && lane % 4 == 0) parts.ends[part] = make_float2(state.max[r], state.sum[2 * r]);
    }
  }

  __device__ void compute(const AttentionParts& parts, bool wide) const {
    load_queries(wide);
    int begin = rows.low / kKvTile, end = (rows.high + kKvTile - 1) / kKvTile;
    const int split = rows.item.split;
    const bool apart = split >= 0;
    if (apart) {
      constexpr int kTiles = kKvSplit / kKvTile;
      begin = begin > split * kTiles ? begin : split * kTiles;
      end = end < (split + 1) * kTiles ? end : (split + 1) * kTiles;
    }
    State state;
    run(state, begin, end, apart);
    if (apart) {
      store_parts(state, parts);
    } else {
      store_out(state);
    }
  }
};

}  // namespace tokenmill::cuda
