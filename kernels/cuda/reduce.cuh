#pragma once
// Reductions over a warp and a block, in an order that depends on the block's size alone. Every thread of the block
// calls them, and every thread gets the result.
#include "kernels/device/cuda.h"

namespace tokenmill::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;

struct Sum {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

template <typename T, typename Combine>
__device__ __forceinline__ T warp_reduce(T value, Combine combine) {
  GPU_UNROLL for (int distance = 16; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

/// kThreads: the block's size, a multiple of 32. Starts with a barrier, so that calls may follow one another.
template <int kThreads, typename T, typename Combine>
__device__ __forceinline__ T block_reduce(T value, Combine combine) {
  static_assert(kThreads % 32 == 0 && kThreads <= 1024);
  using Partials = T[kThreads / 32];
  GPU_SHARED(Partials, partials);
  value = warp_reduce(value, combine);
  __syncthreads();
  if (threadIdx.x % 32 == 0) partials[threadIdx.x / 32] = value;
  __syncthreads();
  value = partials[0];
  GPU_UNROLL for (int warp = 1; warp < kThreads / 32; ++warp) value = combine(value, partials[warp]);
  return value;
}

}  // namespace tokenmill::cuda
