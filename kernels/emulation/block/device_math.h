#pragma once
// Device arithmetic that has no host declaration. Fast forms (__expf, ...) are the exact ones here: results differ from
// the device's in the last bits.
#include <math.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline void __sincosf(float x, float* s, float* c) {
  *s = sinf(x);
  *c = cosf(x);
}
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }  // NaN gives 0

// Rounded once and never fused: volatile keeps the compiler from contracting a product and a sum.
inline float __fadd_rn(float a, float b) {
  volatile float sum = a + b;
  return sum;
}
inline float __fsub_rn(float a, float b) {
  volatile float difference = a - b;
  return difference;
}
inline float __fmul_rn(float a, float b) {
  volatile float product = a * b;
  return product;
}
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

namespace tokenmill::emulation {

/// As cvt.sat does: NaN is 0, what does not fit is the nearest that does.
template <typename Integer>
Integer to_integer(float x) {
  if (x != x) return 0;
  const double wide = x;
  if (wide <= static_cast<double>(std::numeric_limits<Integer>::min())) return std::numeric_limits<Integer>::min();
  if (wide >= static_cast<double>(std::numeric_limits<Integer>::max())) return std::numeric_limits<Integer>::max();
  return static_cast<Integer>(wide);
}

}  // namespace tokenmill::emulation

inline int __float2int_rn(float x) { return tokenmill::emulation::to_integer<int>(rintf(x)); }
inline int __float2int_rz(float x) { return tokenmill::emulation::to_integer<int>(truncf(x)); }
inline int __float2int_rd(float x) { return tokenmill::emulation::to_integer<int>(floorf(x)); }
inline int __float2int_ru(float x) { return tokenmill::emulation::to_integer<int>(ceilf(x)); }
inline unsigned __float2uint_rn(float x) { return tokenmill::emulation::to_integer<unsigned>(rintf(x)); }
inline unsigned __float2uint_rz(float x) { return tokenmill::emulation::to_integer<unsigned>(truncf(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1) << (31 - i);
  return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  unsigned picked = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned choice = selector >> (4 * i) & 15;
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (choice & 7))) & 255;
    if (choice & 8) byte = byte & 128 ? 255 : 0;  // the sign of the byte, repeated
    picked |= byte << (8 * i);
  }
  return picked;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  return c;
}

// Global min and max, as device code has them.
#define TM_MIN_MAX(Type)                                    \
  inline Type min(Type a, Type b) { return b < a ? b : a; } \
  inline Type max(Type a, Type b) { return a < b ? b : a; }
TM_MIN_MAX(int)
TM_MIN_MAX(unsigned)
TM_MIN_MAX(long)
TM_MIN_MAX(unsigned long)
TM_MIN_MAX(long long)
TM_MIN_MAX(unsigned long long)
#undef TM_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
