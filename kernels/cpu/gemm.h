#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/core/tensor.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/panel.h"

namespace tokenmill::cpu {

/// out[m, n] = a[m] . column n (+ bias[n]) (+ residual[m, n]) for panels [panel_begin, panel_end) of packed weights.
struct GemmCall {
  const float* a = nullptr;  ///< [rows, k_count] f32, rows lda apart
  int64_t lda = 0;
  int64_t rows = 0;
  int64_t k_count = 0;
  const std::byte* panels = nullptr;  ///< all panels of the matrix, weight_dtype
  DType weight_dtype = DType::kF32;
  int64_t columns = 0;  ///< of the whole matrix
  TensorView out;       ///< [rows, columns] f32 or bf16
  TensorView bias;      ///< [columns] or undefined
  TensorView residual;  ///< [rows, columns] or undefined; may alias out
};

/// The rest of a linear once the dot products stand in c [rows, columns] f32: adds, rounds and stores columns
/// [column_begin, column_begin + columns) of out.
struct EpilogueCall {
  const float* c = nullptr;
  int64_t ldc = 0;
  int64_t rows = 0, column_begin = 0, columns = 0;
  TensorView out, bias, residual;
  int64_t row_begin = 0;  ///< row of out and residual that c's first row belongs to
};

/// One accumulator per output element over all of K in ascending order: a row's bits do not depend on the other rows,
/// on the panel range or on blocking.
struct GemmKernels {
  /// scratch: gemm_scratch_floats floats of the calling thread.
  void (*panels)(const GemmCall& call, int64_t panel_begin, int64_t panel_end, float* scratch);
  void (*epilogue)(const EpilogueCall& call);
  /// out[r, i] = a[r, i] widened, for rows of k_count bf16.
  void (*widen_rows)(const bf16* a, int64_t lda, int64_t rows, int64_t k_count, float* out, int64_t ldo);
};

constexpr int64_t kGemmRowBlock = 192;  ///< rows that share one pass over the weights
constexpr int64_t kGemmScratchFloats = kGemmRowBlock * 8 * kPanelWidth;

const GemmKernels& gemm_kernels(Isa isa);

}  // namespace tokenmill::cpu
