// sum_parts, add_parts_rms_norm: formulas in kernels/ops.h.
// Work:   rows in fixed ranges over the team; a row's sums are one thread's.
// Bytes:  every part and hidden read once, out (or hidden and normed) written once; the norm reads its row from L1.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/parts.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/norm-inl.h"
#include "kernels/cpu/target.h"

namespace tokenmill::cpu {
#ifndef TOKENMILL_CPU_PARTS_TABLE
#define TOKENMILL_CPU_PARTS_TABLE
struct PartsKernels {
  void (*sum)(TensorView out, TensorView parts, TensorView bias, int64_t begin, int64_t end);
  void (*add_rms_norm)(TensorView normed, TensorView hidden, TensorView parts, TensorView bias, TensorView weight,
                       float eps, int64_t begin, int64_t end);
};
#endif
}  // namespace tokenmill::cpu

HWY_BEFORE_NAMESPACE();
namespace tokenmill::cpu::HWY_NAMESPACE {
namespace {

/// One row of all parts, and the bias: what is added up for an element.
template <typename P>
struct PartsRow {
  const P* first;
  int64_t stride, num_parts;  // elements between parts
  const float* wide_bias;     // one of these two, or neither
  const bf16* narrow_bias;

  PartsRow(const TensorView& parts, const TensorView& bias, int64_t row)
      : first(parts.row<P>(row)),
        stride(parts.size(1) * parts.row_stride()),
        num_parts(parts.size(0)),
        wide_bias(bias.defined() && bias.dtype() == DType::kF32 ? bias.as<float>() : nullptr),
        narrow_bias(bias.defined() && bias.dtype() == DType::kBF16 ? bias.as<bf16>() : nullptr) {}

  HWY_INLINE VecF sum(int64_t i) const {
    VecF s = load(first + i);
    for (int64_t p = 1; p < num_parts; ++p) s = hn::Add(s, load(first + p * stride + i));
    if (wide_bias != nullptr) s = hn::Add(s, load(wide_bias + i));
    if (narrow_bias != nullptr) s = hn::Add(s, load(narrow_bias + i));
    return s;
  }
  HWY_INLINE VecF sum_n(int64_t i, int64_t count) const {
    VecF s = load_n(first + i, count);
    for (int64_t p = 1; p < num_parts; ++p) s = hn::Add(s, load_n(first + p * stride + i, count));
    if (wide_bias != nullptr) s = hn::Add(s, load_n(wide_bias + i, count));
    if (narrow_bias != nullptr) s = hn::Add(s, load_n(narrow_bias + i, count));
    return s;
  }
};

template <typename T, typename P>
void sum_rows(TensorView out, TensorView parts, TensorView bias, int64_t begin, int64_t end) {
  const int64_t n = out.cols();
  for (int64_t r = begin; r < end; ++r) {
    const PartsRow<P> row(parts, bias, r);
    T* o = out.row<T>(r);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(row.sum(i), o + i);
    if (i < n) store_n(row.sum_n(i, n - i), o + i, n - i);
  }
}

template <typename T, typename P>
void add_rms_norm_rows(TensorView normed, TensorView hidden, TensorView parts, TensorView bias, TensorView weight,
                       float eps, int64_t begin, int64_t end) {
  const int64_t n = hidden.cols();
  for (int64_t r = begin; r < end; ++r) {
    const PartsRow<P> row(parts, bias, r);
    T* h = hidden.row<T>(r);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(hn::Add(load(h + i), round_to<T>(row.sum(i))), h + i);
    if (i < n) store_n(hn::Add(load_n(h + i, n - i), round_to<T>(row.sum_n(i, n - i))), h + i, n - i);
    rms_norm_row(normed.row<T>(r), h, weight.as<T>(), n, eps);
  }
}

void sum(TensorView out, TensorView parts, TensorView bias, int64_t begin, int64_t end) {
  if (out.dtype() == DType::kF32) return sum_rows<float, float>(out, parts, bias, begin, end);
  (parts.dtype() == DType::kF32 ? sum_rows<bf16, float> : sum_rows<bf16, bf16>)(out, parts, bias, begin, end);
}

void add_rms_norm(TensorView normed, TensorView hidden, TensorView parts, TensorView bias, TensorView weight, float eps,
                  int64_t begin, int64_t end) {
  const auto rows = hidden.dtype() == DType::kF32  ? add_rms_norm_rows<float, float>
                    : parts.dtype() == DType::kF32 ? add_rms_norm_rows<bf16, float>
                                                   : add_rms_norm_rows<bf16, bf16>;
  rows(normed, hidden, parts, bias, weight, eps, begin, end);
}

}  // namespace

extern const PartsKernels kParts;
const PartsKernels kParts = {sum, add_rms_norm};

}  // namespace tokenmill::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tokenmill::cpu {

void CpuOps::do_sum_parts(TensorView out, TensorView parts, TensorView bias) {
  stream_.submit([=, this] {
    team_.run_sized(out.num_elements() * parts.size(0) / 8, [&](int thread) {
      const auto range = team_.share(out.rows(), thread);
      TM_CPU_TABLE(kParts, isa_).sum(out, parts, bias, range.begin, range.end);
    });
  });
}

void CpuOps::do_add_parts_rms_norm(TensorView normed, TensorView hidden, TensorView parts, TensorView bias,
                                   TensorView weight, float eps) {
  stream_.submit([=, this] {
    team_.run_sized(hidden.num_elements() * (parts.size(0) + 2) / 8, [&](int thread) {
      const auto range = team_.share(hidden.rows(), thread);
      TM_CPU_TABLE(kParts, isa_).add_rms_norm(normed, hidden, parts, bias, weight, eps, range.begin, range.end);
    });
  });
}

}  // namespace tokenmill::cpu
#endif
