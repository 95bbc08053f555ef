// RMS norm of one row; formula and rounding points in kernels/ops.h. Used by norm.cpp and (per head) by rope.cpp.
// clang-format off
#if defined(TOKENMILL_CPU_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOKENMILL_CPU_NORM_INL_H_
#undef TOKENMILL_CPU_NORM_INL_H_
#else
#define TOKENMILL_CPU_NORM_INL_H_
#endif
// clang-format on

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tokenmill::cpu::HWY_NAMESPACE {

/// Sum of x[i]^2 in four interleaved vectors of partial sums: an order that depends on n alone.
template <typename T>
HWY_INLINE float sum_of_squares(const T* x, int64_t n) {
  VecF sums[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) {
      const VecF v = load(x + i + j * kLanes);
      sums[j] = hn::MulAdd(v, v, sums[j]);
    }
  }
  for (int j = 0; i < n; i += kLanes, ++j) {
    const VecF v = n - i >= kLanes ? load(x + i) : load_n(x + i, n - i);
    sums[j] = hn::MulAdd(v, v, sums[j]);
  }
  return sum_lanes(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
}

/// out[i] = round(round(x[i] / sqrt(mean + eps)) * weight[i]). out may be x.
template <typename T>
HWY_INLINE void rms_norm_row(T* out, const T* x, const T* weight, int64_t n, float eps) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  const VecF scale = hn::Div(set(1.0f), hn::Sqrt(set(mean + eps)));
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store(hn::Mul(round_to<T>(hn::Mul(load(x + i), scale)), load(weight + i)), out + i);
  }
  if (i < n) {
    const VecF normed = round_to<T>(hn::Mul(load_n(x + i, n - i), scale));
    store_n(hn::Mul(normed, load_n(weight + i, n - i)), out + i, n - i);
  }
}

}  // namespace tokenmill::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard
