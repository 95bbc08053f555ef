#pragma once
// Arithmetic that the device has one instruction for.
#include "kernels/cuda/ptx_base.h"
#ifdef TOKENMILL_CUDA_EMULATED
#include <cmath>
#endif

namespace tokenmill::ptx {

/// 2^x to about two units in the last place; subnormal numbers count as zero. exp2(0) is exactly 1, exp2(-infinity) 0.
#ifndef TOKENMILL_CUDA_EMULATED
__device__ __forceinline__ float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#else
inline float exp2(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
}
#endif

}  // namespace tokenmill::ptx
