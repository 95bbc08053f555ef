#pragma once
// What the attention backends with matrix instructions keep of a row between tiles and splits, and where. The walks
// (attention_walk.cuh, attention_wgmma_walk.cuh) and the merge of splits that were computed apart (attention_paged.cu)
// fold splits by the same functions.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/ptx.h"

namespace tokenmill::cuda {

constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kNothingSeen = -INFINITY;

/// Rows of a row tile of "paged_mma"; one with at most kMmaSmallRows is computed by the warps in another division.
constexpr int kMmaRows = 64, kMmaSmallRows = 16;

/// Sizes of a block of "paged_mma". Shared memory: two stages of (keys, values), the queries, the warps' maxima.
template <int kDim>
struct MmaBlock {
  static constexpr int kWarps = kDim > 128 ? 8 : 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kChunks = kDim / 8;
  static constexpr int kTileBytes = kKvTile * kDim * 2;
  static constexpr int kQueries = 4 * kTileBytes;
  static constexpr int kMaxima = kQueries + kMmaRows * kDim * 2;
  static constexpr int kSharedBytes = kMaxima + kWarps * 16 * static_cast<int>(sizeof(float));
};

/// Where blocks keep the state of a walk's splits while they compute the next: kFloats of each thread, a block's
/// threads side by side.
template <int kDim>
struct FoldedStates {
  using Block = MmaBlock<kDim>;
  static constexpr int kFloats = kDim / 8 / (Block::kWarps / 4) * 4 + 4;
  static constexpr int64_t kBlockBytes = int64_t{sizeof(float)} * kFloats * Block::kThreads;
  float* data;
  __device__ float* own() const {
    return data + static_cast<int64_t>(blockIdx.x) * (kFloats * Block::kThreads) + threadIdx.x;
  }
};

/// Weights with which the state of a split enters that of the splits before it.
struct FoldWeights {
  float top, keep, add;
  /// factor: what brings maxima to powers of two.
  __device__ __forceinline__ FoldWeights(float before, float split, float factor) {
    top = fmaxf(before, split);
    const float base = top == kNothingSeen ? 0.0f : top;
    keep = ptx::exp2((before - base) * factor);
    add = ptx::exp2((split - base) * factor);
  }
  __device__ __forceinline__ float fold(float before, float split) const { return fmaf(split, add, before * keep); }
};

/// What brings capped (or raw) scores to powers of two.
inline __host__ __device__ float score_factor(const AttentionParams& params) {
  return params.softcap > 0 ? kLog2E : params.scale * kLog2E;
}

/// What one thread holds of an online softmax: two rows (lane / 4, + 8) of some columns.
template <int kTiles>
struct RowState {
  float out[kTiles][4];
  float sum[4];  // the columns of P times ones: 0 and 1 are equal, and so are 2 and 3
  float max[2];
  __device__ __forceinline__ void clear() {
    GPU_UNROLL for (int n = 0; n < kTiles; ++n) { GPU_UNROLL for (int i = 0; i < 4; ++i) out[n][i] = 0; }
    GPU_UNROLL for (int i = 0; i < 4; ++i) sum[i] = 0;
    max[0] = max[1] = kNothingSeen;
  }
  /// To and from memory: every `stride`-th float from `to`.
  __device__ __forceinline__ void store(float* to, int stride) const {
    GPU_UNROLL for (int n = 0; n < kTiles; ++n) {
      GPU_UNROLL for (int i = 0; i < 4; ++i) to[(4 * n + i) * stride] = out[n][i];
    }
    GPU_UNROLL for (int r = 0; r < 2; ++r) {
      to[(4 * kTiles + r) * stride] = max[r];
      to[(4 * kTiles + 2 + r) * stride] = sum[2 * r];
    }
  }
  __device__ __forceinline__ void load(const float* from, int stride) {
    GPU_UNROLL for (int n = 0; n < kTiles; ++n) {
      GPU_UNROLL for (int i = 0; i < 4; ++i) out[n][i] = from[(4 * n + i) * stride];
    }
    GPU_UNROLL for (int r = 0; r < 2; ++r) {
      max[r] = from[(4 * kTiles + r) * stride];
      sum[2 * r] = sum[2 * r + 1] = from[(4 * kTiles + 2 + r) * stride];
    }
  }
  __device__ __forceinline__ void fold(const RowState& split, float factor) {
    GPU_UNROLL for (int r = 0; r < 2; ++r) {
      const FoldWeights weights(max[r], split.max[r], factor);
      max[r] = weights.top;
      GPU_UNROLL for (int i = 2 * r; i < 2 * r + 2; ++i) {
        sum[i] = weights.fold(sum[i], split.sum[i]);
        GPU_UNROLL for (int n = 0; n < kTiles; ++n) out[n][i] = weights.fold(out[n][i], split.out[n][i]);
      }
    }
  }
};

}  // namespace tokenmill::cuda
