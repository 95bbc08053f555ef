#pragma once
// Elements of the compute dtypes in device code: widening, rounding, packs of 16 bytes, and the switch from a DType.
#include <initializer_list>

#include "kernels/core/tensor.h"
#include "kernels/device/cuda.h"

namespace tokenmill::cuda {

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }

/// Round to nearest, ties to even.
template <typename T>
__device__ __forceinline__ T narrow(float x);
template <>
__device__ __forceinline__ float narrow<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ __half narrow<__half>(float x) {
  return __float2half_rn(x);
}

/// Elements that one thread loads with one instruction where addresses allow it: 16 bytes.
template <typename T>
constexpr int kPack = 16 / static_cast<int>(sizeof(T));

/// values[i] = p[i] for i < count, zeros behind. wide: p is aligned to 16 bytes and count is the whole pack. The values
/// do not depend on wide, so sums over packs have one order whatever the alignment.
template <typename T>
__device__ __forceinline__ void load_pack(float (&values)[kPack<T>], const T* p, int count, bool wide) {
  if (wide) {
    const uint4 raw = *reinterpret_cast<const uint4*>(p);
    T elements[kPack<T>];
    memcpy(static_cast<void*>(elements), &raw, sizeof(raw));
    GPU_UNROLL for (int i = 0; i < kPack<T>; ++i) values[i] = widen(elements[i]);
    return;
  }
  GPU_UNROLL for (int i = 0; i < kPack<T>; ++i) values[i] = i < count ? widen(p[i]) : 0.0f;
}

/// p[i] = values[i], rounded, for i < count.
template <typename T>
__device__ __forceinline__ void store_pack(T* p, const float (&values)[kPack<T>], int count, bool wide) {
  if (wide) {
    T elements[kPack<T>];
    GPU_UNROLL for (int i = 0; i < kPack<T>; ++i) elements[i] = narrow<T>(values[i]);
    uint4 raw;
    memcpy(&raw, static_cast<const void*>(elements), sizeof(raw));
    *reinterpret_cast<uint4*>(p) = raw;
    return;
  }
  GPU_UNROLL for (int i = 0; i < kPack<T>; ++i) {
    if (i < count) p[i] = narrow<T>(values[i]);
  }
}

/// Whether all rows of all views start at multiples of 16 bytes.
inline bool all_aligned(std::initializer_list<TensorView> views) {
  for (const TensorView& view : views) {
    const int64_t stride_bytes = view.rank() == 1 ? 0 : view.row_stride() * dtype_size(view.dtype());
    if (reinterpret_cast<uintptr_t>(view.data()) % 16 != 0 || stride_bytes % 16 != 0) return false;
  }
  return true;
}

/// Calls function.template operator()<T>() with the element type that holds dtype on the device.
template <typename Function>
void dispatch_float(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kF32: return function.template operator()<float>();
    case DType::kBF16: return function.template operator()<__nv_bfloat16>();
    case DType::kF16: return function.template operator()<__half>();
    default: TM_ASSERT(false, "{} is no compute dtype", to_string(dtype));
  }
}

/// The data of a view as the device's element type: DType says which, T must be it.
template <typename T>
T* device_data(const TensorView& view) {
  return static_cast<T*>(view.data());
}

}  // namespace tokenmill::cuda
