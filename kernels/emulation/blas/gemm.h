#pragma once
#include <cublas_v2.h>
#include <library_types.h>

#include <cstdint>

#include "kernels/emulation/runtime.h"

namespace tokenmill::emulation {

/// One operand, column-major as in cuBLAS: element (row, column) of what is stored lies at row + column * ld.
struct Matrix {
  const void* data = nullptr;
  cudaDataType_t type = CUDA_R_32F;
  int64_t ld = 0;
  int64_t batch_stride = 0;  // elements
  bool transposed = false;   // op(matrix) is the transpose of what is stored; never for c and d
};

/// d[m, n] = alpha * op(a)[m, k] * op(b)[k, n] + beta * c[m, n] + bias[m], for every matrix of the batch.
struct Gemm {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  float alpha = 1, beta = 0;
  Matrix a, b, c, d;           // d.data is written; c may be d
  const void* bias = nullptr;  // of d's type; none: 0
};

/// f32, bf16 and f16.
bool is_supported(cudaDataType_t type);

/// CUBLAS_STATUS_SUCCESS if shapes, leading dimensions and types go together; types of a and b must be equal.
cublasStatus_t check(const Gemm& gemm);

/// Puts the product on the stream. Every element has one f32 accumulator that takes its k products in ascending order
/// and is rounded once, so a result never depends on the other rows or columns (which real cuBLAS does not promise).
/// Operands outside device memory are an error when the product runs.
cublasStatus_t enqueue_gemm(cudaStream_t stream, const char* name, const Gemm& gemm);

}  // namespace tokenmill::emulation
