#pragma once
// Half and bfloat16 intrinsics that NVIDIA's headers define for the device alone. Each computes in f32 (fma: in f64)
// and rounds once, which is at least as close as what the device promises.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>

namespace tokenmill::emulation {

inline float to_f32(__half x) { return __half2float(x); }
inline float to_f32(__nv_bfloat16 x) { return __bfloat162float(x); }
template <typename H>
H rounded(float x);
template <>
inline __half rounded<__half>(float x) {
  return __float2half_rn(x);
}
template <>
inline __nv_bfloat16 rounded<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

/// a * b + c, rounded once: the product is exact in f64, and so is nearly every sum.
inline __half fused(__half a, __half b, __half c) {
  return __double2half(
      fma(static_cast<double>(to_f32(a)), static_cast<double>(to_f32(b)), static_cast<double>(to_f32(c))));
}
inline __nv_bfloat16 fused(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  return __double2bfloat16(
      fma(static_cast<double>(to_f32(a)), static_cast<double>(to_f32(b)), static_cast<double>(to_f32(c))));
}
template <typename H>
H relu(H x) {
  return to_f32(x) > 0 ? x : rounded<H>(0);
}
template <typename H>
H saturated(H x) {
  return to_f32(x) > 0 ? to_f32(x) < 1 ? x : rounded<H>(1) : rounded<H>(0);
}

}  // namespace tokenmill::emulation

// One line per function: the scalar form hNAME and the pair form h2NAME for both types.
#define TM_HALF_FUNCTION_OF(Type, Pair, name, expression)               \
  inline Type h##name(Type h) {                                         \
    [[maybe_unused]] const float x = ::tokenmill::emulation::to_f32(h); \
    return ::tokenmill::emulation::rounded<Type>(expression);           \
  }                                                                     \
  inline Pair h2##name(Pair h) { return {h##name(h.x), h##name(h.y)}; }
#define TM_HALF_FUNCTION(name, expression)               \
  TM_HALF_FUNCTION_OF(__half, __half2, name, expression) \
  TM_HALF_FUNCTION_OF(__nv_bfloat16, __nv_bfloat162, name, expression)
TM_HALF_FUNCTION(exp, expf(x))
TM_HALF_FUNCTION(exp2, exp2f(x))
TM_HALF_FUNCTION(exp10, powf(10.0f, x))
TM_HALF_FUNCTION(log, logf(x))
TM_HALF_FUNCTION(log2, log2f(x))
TM_HALF_FUNCTION(log10, log10f(x))
TM_HALF_FUNCTION(sqrt, sqrtf(x))
TM_HALF_FUNCTION(rsqrt, 1.0f / sqrtf(x))
TM_HALF_FUNCTION(rcp, 1.0f / x)
TM_HALF_FUNCTION(sin, sinf(x))
TM_HALF_FUNCTION(cos, cosf(x))
TM_HALF_FUNCTION(tanh, tanhf(x))
TM_HALF_FUNCTION(tanh_approx, tanhf(x))
TM_HALF_FUNCTION(ceil, ceilf(x))
TM_HALF_FUNCTION(floor, floorf(x))
TM_HALF_FUNCTION(trunc, truncf(x))
TM_HALF_FUNCTION(rint, rintf(x))
#undef TM_HALF_FUNCTION
#undef TM_HALF_FUNCTION_OF

#define TM_HALF_FMA(Type, Pair)                                                                                 \
  inline Type __hfma(Type a, Type b, Type c) { return ::tokenmill::emulation::fused(a, b, c); }                 \
  inline Type __hfma_relu(Type a, Type b, Type c) { return ::tokenmill::emulation::relu(__hfma(a, b, c)); }     \
  inline Type __hfma_sat(Type a, Type b, Type c) { return ::tokenmill::emulation::saturated(__hfma(a, b, c)); } \
  inline Pair __hfma2(Pair a, Pair b, Pair c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }        \
  inline Pair __hfma2_relu(Pair a, Pair b, Pair c) { return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)}; }
TM_HALF_FMA(__half, __half2)
TM_HALF_FMA(__nv_bfloat16, __nv_bfloat162)
#undef TM_HALF_FMA

inline int __half2int_rn(__half h) { return static_cast<int>(rintf(__half2float(h))); }
inline int __bfloat162int_rn(__nv_bfloat16 h) { return static_cast<int>(rintf(__bfloat162float(h))); }
