#pragma once
// RMS norm of one row by one block; formula and rounding points in kernels/ops.h.
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"

namespace tokenmill::cuda {

constexpr int kNormThreads = 256;

/// Calls visit(first element, elements that exist, whether whole and aligned) for the packs of this thread.
template <typename T, typename Visit>
__device__ __forceinline__ void for_each_pack(int n, bool aligned, Visit visit) {
  for (int i = static_cast<int>(threadIdx.x) * kPack<T>; i < n; i += kNormThreads * kPack<T>) {
    const int count = n - i < kPack<T> ? n - i : kPack<T>;
    visit(i, count, aligned && count == kPack<T>);
  }
}

/// Adds the squares of a pack to sum, in ascending order.
template <int kCount>
__device__ __forceinline__ float add_squares(float sum, const float (&values)[kCount]) {
  GPU_UNROLL for (int i = 0; i < kCount; ++i) sum = fmaf(values[i], values[i], sum);
  return sum;
}

/// 1 / sqrt(mean square + eps) of a row whose squares the threads of the block have added up.
__device__ __forceinline__ float norm_scale(float thread_sum, int n, float eps) {
  const float sum = block_reduce<kNormThreads>(thread_sum, Sum{});
  return 1.0f / sqrtf(sum / static_cast<float>(n) + eps);
}

/// out[i] = round(round(x[i] * scale) * weight[i]). out may be x.
template <typename T>
__device__ __forceinline__ void scale_row(T* out, const T* x, const T* weight, int n, float scale, bool aligned) {
  for_each_pack<T>(n, aligned, [&](int i, int count, bool wide) {
    float values[kPack<T>], w[kPack<T>];
    load_pack(values, x + i, count, wide);
    load_pack(w, weight + i, count, wide);
    GPU_UNROLL for (int j = 0; j < kPack<T>; ++j) values[j] = widen(narrow<T>(values[j] * scale)) * w[j];
    store_pack(out + i, values, count, wide);
  });
}

}  // namespace tokenmill::cuda
