// rms_norm, add_rms_norm, add: formulas in kernels/ops.h.
// Work:   rows in fixed ranges over the team; a row's sum is one thread's.
// Bytes:  each row read twice (the second time from L1), written once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/norm-inl.h"
#include "kernels/cpu/target.h"

namespace tokenmill::cpu {
#ifndef TOKENMILL_CPU_NORM_TABLE
#define TOKENMILL_CPU_NORM_TABLE
struct NormKernels {
  void (*rms_norm)(TensorView out, TensorView x, TensorView weight, float eps, int64_t begin, int64_t end);
  void (*add_rms_norm)(TensorView normed, TensorView hidden, TensorView block_out, TensorView weight, float eps,
                       int64_t begin, int64_t end);
  void (*add)(TensorView hidden, TensorView block_out, int64_t begin, int64_t end);
};
#endif
}  // namespace tokenmill::cpu

HWY_BEFORE_NAMESPACE();
namespace tokenmill::cpu::HWY_NAMESPACE {
namespace {

/// hidden[i] += block_out[i], rounded.
template <typename T>
HWY_INLINE void add_row(T* hidden, const T* block_out, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(hn::Add(load(hidden + i), load(block_out + i)), hidden + i);
  if (i < n) store_n(hn::Add(load_n(hidden + i, n - i), load_n(block_out + i, n - i)), hidden + i, n - i);
}

template <typename T>
void rms_norm_rows(TensorView out, TensorView x, TensorView weight, float eps, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) rms_norm_row(out.row<T>(r), x.row<T>(r), weight.as<T>(), x.cols(), eps);
}

template <typename T>
void add_rows(TensorView hidden, TensorView block_out, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) add_row(hidden.row<T>(r), block_out.row<T>(r), hidden.cols());
}

template <typename T>
void add_rms_norm_rows(TensorView normed, TensorView hidden, TensorView block_out, TensorView weight, float eps,
                       int64_t begin, int64_t end) {
  const int64_t n = hidden.cols();
  for (int64_t r = begin; r < end; ++r) {
    T* h = hidden.row<T>(r);
    add_row(h, block_out.row<T>(r), n);
    rms_norm_row(normed.row<T>(r), h, weight.as<T>(), n, eps);
  }
}

void rms_norm(TensorView out, TensorView x, TensorView weight, float eps, int64_t begin, int64_t end) {
  (x.dtype() == DType::kF32 ? rms_norm_rows<float> : rms_norm_rows<bf16>)(out, x, weight, eps, begin, end);
}

void add_rms_norm(TensorView normed, TensorView hidden, TensorView block_out, TensorView weight, float eps,
                  int64_t begin, int64_t end) {
  (hidden.dtype() == DType::kF32 ? add_rms_norm_rows<float> : add_rms_norm_rows<bf16>)(normed, hidden, block_out,
                                                                                       weight, eps, begin, end);
}

void add(TensorView hidden, TensorView block_out, int64_t begin, int64_t end) {
  (hidden.dtype() == DType::kF32 ? add_rows<float> : add_rows<bf16>)(hidden, block_out, begin, end);
}

}  // namespace

extern const NormKernels kNorm;
const NormKernels kNorm = {rms_norm, add_rms_norm, add};

}  // namespace tokenmill::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tokenmill::cpu {

void CpuOps::do_rms_norm(TensorView out, TensorView x, TensorView weight, float eps) {
  stream_.submit([=, this] {
    team_.run_sized(x.num_elements() / 4, [&](int thread) {
      const auto range = team_.share(x.rows(), thread);
      TM_CPU_TABLE(kNorm, isa_).rms_norm(out, x, weight, eps, range.begin, range.end);
    });
  });
}

void CpuOps::do_add_rms_norm(TensorView normed, TensorView hidden, TensorView block_out, TensorView weight, float eps) {
  stream_.submit([=, this] {
    team_.run_sized(hidden.num_elements() / 4, [&](int thread) {
      const auto range = team_.share(hidden.rows(), thread);
      TM_CPU_TABLE(kNorm, isa_).add_rms_norm(normed, hidden, block_out, weight, eps, range.begin, range.end);
    });
  });
}

void CpuOps::do_add(TensorView hidden, TensorView block_out) {
  stream_.submit([=, this] {
    team_.run_sized(hidden.num_elements() / 8, [&](int thread) {
      const auto range = team_.share(hidden.rows(), thread);
      TM_CPU_TABLE(kNorm, isa_).add(hidden, block_out, range.begin, range.end);
    });
  });
}

}  // namespace tokenmill::cpu
#endif
