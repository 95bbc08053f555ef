// gated_activation, gather_rows: one pass over rows, in fixed ranges over the team.
// Bytes:  every input read once, every output written once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/target.h"

namespace tokenmill::cpu {
#ifndef TOKENMILL_CPU_ACTIVATION_TABLE
#define TOKENMILL_CPU_ACTIVATION_TABLE
struct ActivationKernels {
  void (*gated)(TensorView out, TensorView gate_up, Activation activation, int64_t begin, int64_t end);
};
#endif
}  // namespace tokenmill::cpu

HWY_BEFORE_NAMESPACE();
namespace tokenmill::cpu::HWY_NAMESPACE {
namespace {

HWY_INLINE VecF gate(VecF g, VecF u, bool silu) {
  if (!silu) return hn::Mul(g, u);
  return hn::Mul(hn::Div(g, hn::Add(set(1.0f), exp(hn::Neg(g)))), u);
}

template <typename T>
void gated_rows(TensorView out, TensorView gate_up, bool silu, int64_t begin, int64_t end) {
  const int64_t n = out.cols();
  for (int64_t r = begin; r < end; ++r) {
    const T* g = gate_up.row<T>(r);
    const T* u = g + n;
    T* o = out.row<T>(r);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(gate(load(g + i), load(u + i), silu), o + i);
    if (i < n) store_n(gate(load_n(g + i, n - i), load_n(u + i, n - i), silu), o + i, n - i);
  }
}

void gated(TensorView out, TensorView gate_up, Activation activation, int64_t begin, int64_t end) {
  const bool silu = activation == Activation::kSilu;
  (out.dtype() == DType::kF32 ? gated_rows<float> : gated_rows<bf16>)(out, gate_up, silu, begin, end);
}

}  // namespace

extern const ActivationKernels kActivation;
const ActivationKernels kActivation = {gated};

}  // namespace tokenmill::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cstring>

#include "kernels/core/check.h"

namespace tokenmill::cpu {

void CpuOps::do_gated_activation(TensorView out, TensorView gate_up, Activation activation) {
  stream_.submit([=, this] {
    team_.run_sized(out.num_elements(), [&](int thread) {
      const auto range = team_.share(out.rows(), thread);
      TM_CPU_TABLE(kActivation, isa_).gated(out, gate_up, activation, range.begin, range.end);
    });
  });
}

void CpuOps::do_gather_rows(TensorView out, TensorView x, TensorView rows) {
  stream_.submit([=] {
    const int64_t element = dtype_size(x.dtype());
    for (int64_t r = 0; r < out.rows(); ++r) {
      const int64_t source = rows.as<int32_t>()[r];
      TM_ASSERT(source >= 0 && source < x.rows(), "gather_rows: row {} of {}", source, x.describe());
      std::memcpy(static_cast<char*>(out.data()) + r * out.row_stride() * element,
                  static_cast<const char*>(x.data()) + source * x.row_stride() * element,
                  static_cast<size_t>(x.cols() * element));
    }
  });
}

}  // namespace tokenmill::cpu
#endif
