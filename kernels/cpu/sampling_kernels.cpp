// The vector loops of lm_head_tiles and pick. Sums over a tile run in an order that depends on the tile alone.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sampling_kernels.cpp"
#include "kernels/cpu/sampling_kernels.h"

#include "hwy/foreach_target.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/target.h"

HWY_BEFORE_NAMESPACE();
namespace tokenmill::cpu::HWY_NAMESPACE {
namespace {

/// Elements [i, i + kLanes) of count; lanes past the end are `fill`.
HWY_INLINE VecF load_or(const float* p, int64_t i, int64_t count, VecF fill) {
  if (i + kLanes <= count) return load(p + i);
  const auto inside = hn::FirstN(TagF{}, static_cast<size_t>(count - i));
  return hn::IfThenElse(inside, load_n(p + i, count - i), fill);
}

HWY_INLINE float sum_exp(const float* logits, int64_t count, float max, float temperature, bool divide) {
  const VecF minus_infinity = set(-__builtin_inff()), top = set(max), t = set(temperature);
  VecF sums[2] = {zero(), zero()};
  for (int64_t i = 0; i < count; i += 2 * kLanes) {
    for (int j = 0; j < 2; ++j) {
      const int64_t at = i + j * kLanes;
      if (at >= count) break;
      VecF x = hn::Sub(load_or(logits, at, count, minus_infinity), top);
      if (divide) x = hn::Div(x, t);
      sums[j] = hn::Add(sums[j], exp(x));
    }
  }
  return sum_lanes(hn::Add(sums[0], sums[1]));
}

/// The largest of count values that are not NaN.
HWY_INLINE float max_of(const float* values, int64_t count) {
  VecF top = set(-__builtin_inff());
  for (int64_t i = 0; i < count; i += kLanes) top = hn::Max(top, load_or(values, i, count, set(values[0])));
  return max_lanes(top);
}

/// The first of count values that equals one of them.
HWY_INLINE int32_t index_of(const float* values, int64_t count, float value) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const VecF x = load_or(values, i, count, set(-__builtin_inff()));
    const intptr_t lane = hn::FindFirstTrue(TagF{}, hn::Eq(x, set(value)));
    if (lane >= 0) return static_cast<int32_t>(i + lane);
  }
  return 0;
}

TilePartials tile_partials(const float* logits, const float* adjusted, int64_t count, float temperature) {
  TilePartials out{};
  VecF top = set(-__builtin_inff()), probe = zero();
  for (int64_t i = 0; i < count; i += kLanes) {
    const VecF x = load_or(logits, i, count, set(logits[0]));
    top = hn::Max(top, x);
    probe = hn::MulAdd(x, zero(), probe);  // 0 for finite x, NaN else
  }
  out.max = out.adjusted_max = max_lanes(top);
  out.non_finite = sum_lanes(probe) == 0.0f ? 0 : 1;
  if (out.non_finite != 0) return out;
  out.sum_exp = sum_exp(logits, count, out.max, 1.0f, false);
  if (adjusted == nullptr) {
    out.argmax = index_of(logits, count, out.max);
    out.sum_exp_t = temperature == 1.0f ? out.sum_exp : sum_exp(logits, count, out.max, temperature, true);
    return out;
  }
  out.adjusted_max = max_of(adjusted, count);
  if (out.adjusted_max == -__builtin_inff()) return out;
  out.argmax = index_of(adjusted, count, out.adjusted_max);
  out.sum_exp_t = sum_exp(adjusted, count, out.adjusted_max, temperature, true);
  return out;
}

void adjust(const float* logits, const float* bias, const int32_t* counts, int64_t count, const Penalties& penalties,
            float* out) {
  const TagI i32;
  const VecF lowest = set(-__FLT_MAX__), highest = set(__FLT_MAX__), minus_infinity = set(-__builtin_inff());
  const VecF repetition = set(penalties.repetition), frequency = set(penalties.frequency),
             presence = set(penalties.presence);
  HWY_ALIGN int32_t tail[kLanes] = {};
  for (int64_t i = 0; i < count; i += kLanes) {
    VecF x = load_or(logits, i, count, zero());
    const VecF b = bias == nullptr ? zero() : load_or(bias, i, count, zero());
    if (bias != nullptr) x = hn::Add(x, b);
    if (counts != nullptr) {
      const int32_t* at = counts + i;
      if (i + kLanes > count) {
        for (int64_t j = 0; j < count - i; ++j) tail[j] = at[j];
        at = tail;
      }
      const auto word = hn::LoadU(i32, at);
      const VecF c = hn::ConvertTo(TagF{}, hn::And(word, hn::Set(i32, 0x7fffffff)));
      const VecF repeated = hn::IfThenElse(hn::Gt(x, zero()), hn::Div(x, repetition), hn::Mul(x, repetition));
      x = hn::IfThenElse(hn::RebindMask(TagF{}, hn::Ne(word, hn::Zero(i32))), repeated, x);
      const VecF punished = hn::Sub(hn::Sub(x, hn::Mul(frequency, c)), presence);
      x = hn::IfThenElse(hn::Gt(c, zero()), punished, x);
    }
    x = hn::Min(hn::Max(x, lowest), highest);
    x = hn::IfThenElse(hn::Eq(b, minus_infinity), minus_infinity, x);
    if (i + kLanes <= count) {
      store(x, out + i);
    } else {
      store_n(x, out + i, count - i);
    }
  }
}

void weights(const float* logits, int64_t count, float max, float temperature, float* scaled, float* weight) {
  const VecF top = set(max), t = set(temperature);
  for (int64_t i = 0; i < count; i += kLanes) {
    const VecF y = hn::Div(hn::Sub(load_or(logits, i, count, top), top), t);
    const VecF w = exp(y);
    if (i + kLanes <= count) {
      if (scaled != nullptr) store(y, scaled + i);
      store(w, weight + i);
    } else {
      if (scaled != nullptr) store_n(y, scaled + i, count - i);
      store_n(w, weight + i, count - i);
    }
  }
}

}  // namespace

extern const SamplingKernels kSampling;
const SamplingKernels kSampling = {tile_partials, adjust, weights};

}  // namespace tokenmill::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tokenmill::cpu {
const SamplingKernels& sampling_kernels(Isa isa) { return TM_CPU_TABLE(kSampling, isa); }
}  // namespace tokenmill::cpu
#endif
