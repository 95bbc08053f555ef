// Per-target helpers of the kernel files, on Highway. Built once per ISA through foreach_target: everything lies in
// tokenmill::cpu::HWY_NAMESPACE and no inline function of the standard library is used (the linker could keep an
// AVX-512 copy of it and run it on an AVX2 machine).
// clang-format off
#if defined(TOKENMILL_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOKENMILL_CPU_SIMD_INL_H_
#undef TOKENMILL_CPU_SIMD_INL_H_
#else
#define TOKENMILL_CPU_SIMD_INL_H_
#endif
// clang-format on

#include "hwy/highway.h"
#include "kernels/core/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace tokenmill::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using TagF = hn::ScalableTag<float>;
using TagU = hn::RebindToUnsigned<TagF>;
using TagI = hn::RebindToSigned<TagF>;
using TagH = hn::Rebind<uint16_t, TagF>;
using VecF = hn::Vec<TagF>;
constexpr int kLanes = HWY_LANES(float);  // 8 on AVX2, 16 on AVX-512

HWY_INLINE VecF set(float x) { return hn::Set(TagF{}, x); }
HWY_INLINE VecF zero() { return hn::Zero(TagF{}); }

HWY_INLINE VecF load(const float* p) { return hn::LoadU(TagF{}, p); }
HWY_INLINE VecF load(const bf16* p) {
  const auto half = hn::LoadU(TagH{}, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(TagF{}, hn::ShiftLeft<16>(hn::PromoteTo(TagU{}, half)));
}

/// x rounded to a bf16 value (nearest, ties to even, NaN stays NaN), in the upper halves of the lanes.
HWY_INLINE hn::Vec<TagU> bf16_bits(VecF x) {
  const TagU u;
  const auto bits = hn::BitCast(u, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(u, 0x7fffu)));
  const auto quiet = hn::Or(bits, hn::Set(u, 0x400000u));
  return hn::IfThenElse(hn::RebindMask(u, hn::IsNaN(x)), quiet, rounded);
}

HWY_INLINE void store(VecF x, float* p) { hn::StoreU(x, TagF{}, p); }
HWY_INLINE void store(VecF x, bf16* p) {
  const auto narrow = hn::DemoteTo(TagH{}, hn::BitCast(TagI{}, hn::ShiftRight<16>(bf16_bits(x))));
  hn::StoreU(narrow, TagH{}, reinterpret_cast<uint16_t*>(p));
}

/// What storing x as T and loading it again gives.
template <typename T>
HWY_INLINE VecF round_to(VecF x) {
  if constexpr (sizeof(T) == 2) {
    return hn::BitCast(TagF{}, hn::And(bf16_bits(x), hn::Set(TagU{}, 0xffff0000u)));
  } else {
    return x;
  }
}

/// The first n < kLanes elements; the other lanes are zero (load) or untouched in memory (store).
template <typename T>
HWY_INLINE VecF load_n(const T* p, int64_t n) {
  HWY_ALIGN T lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
template <typename T>
HWY_INLINE void store_n(VecF x, T* p, int64_t n) {
  HWY_ALIGN T lanes[kLanes];
  store(x, lanes);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

HWY_INLINE float sum_lanes(VecF x) { return hn::GetLane(hn::SumOfLanes(TagF{}, x)); }
HWY_INLINE float max_lanes(VecF x) { return hn::GetLane(hn::MaxOfLanes(TagF{}, x)); }

/// exp(x) within 2 ulp: x = n ln 2 + r, a degree-6 polynomial in r (Cephes expf), times 2^n. Below -87.33 (where the
/// result would be subnormal) 0, above 88.37 about 2.4e38, NaN for NaN.
HWY_INLINE VecF exp(VecF x) {
  const TagF f;
  const TagI i;
  const VecF low = set(-87.33f);
  const VecF clamped = hn::Min(hn::Max(x, low), set(88.37f));
  const VecF n = hn::Round(hn::Mul(clamped, set(1.44269504088896341f)));
  VecF r = hn::NegMulAdd(n, set(0.693359375f), clamped);
  r = hn::NegMulAdd(n, set(-2.12194440e-4f), r);
  VecF p = set(1.9875691500e-4f);
  p = hn::MulAdd(p, r, set(1.3981999507e-3f));
  p = hn::MulAdd(p, r, set(8.3334519073e-3f));
  p = hn::MulAdd(p, r, set(4.1665795894e-2f));
  p = hn::MulAdd(p, r, set(1.6666665459e-1f));
  p = hn::MulAdd(p, r, set(5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), set(1.0f));
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(i, n), hn::Set(i, 127)));
  const VecF y = hn::IfThenElseZero(hn::Ge(x, low), hn::Mul(p, hn::BitCast(f, power)));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

/// tanh(x) within a few ulp: a Taylor polynomial near 0, where 1 - 2 / (exp(2|x|) + 1) would cancel.
HWY_INLINE VecF tanh(VecF x) {
  const VecF a = hn::Abs(x), s = hn::Mul(x, x);
  VecF p = set(62.0f / 2835.0f);
  p = hn::MulAdd(p, s, set(-17.0f / 315.0f));
  p = hn::MulAdd(p, s, set(2.0f / 15.0f));
  p = hn::MulAdd(p, s, set(-1.0f / 3.0f));
  const VecF near_zero = hn::MulAdd(hn::Mul(p, s), x, x);
  const VecF e = exp(hn::Add(a, a));
  const VecF far = hn::CopySignToAbs(hn::Sub(set(1.0f), hn::Div(set(2.0f), hn::Add(e, set(1.0f)))), x);
  return hn::IfThenElse(hn::IsNaN(x), x, hn::IfThenElse(hn::Lt(a, set(0.25f)), near_zero, far));
}

}  // namespace tokenmill::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard
