#include "kernels/emulation/blas/gemm.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace tokenmill::emulation {
namespace {

// A tile of kRows x kColumns accumulators stays in registers: two vectors of 8 for each column.
using Vector = float __attribute__((vector_size(32)));
constexpr int kRows = 16, kColumns = 6;

void store(void* data, int64_t index, cudaDataType_t type, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[index] = value;
  } else if (type == CUDA_R_16BF) {
    static_cast<__nv_bfloat16*>(data)[index] = __float2bfloat16(value);
  } else {
    static_cast<__half*>(data)[index] = __float2half(value);
  }
}

int64_t num_bytes_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

float widen(float value) { return value; }
float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
float widen(__half value) { return __half2float(value); }

/// target[i * target_step] = source[i * step], as f32.
template <typename T>
void widen_line(const T* source, int64_t step, int64_t count, float* target, int64_t target_step) {
  for (int64_t i = 0; i < count; ++i) target[i * target_step] = widen(source[i * step]);
}

void widen_line(const Matrix& matrix, int64_t start, int64_t step, int64_t count, float* target, int64_t target_step) {
  if (matrix.type == CUDA_R_32F) {
    widen_line(static_cast<const float*>(matrix.data) + start, step, count, target, target_step);
  } else if (matrix.type == CUDA_R_16BF) {
    widen_line(static_cast<const __nv_bfloat16*>(matrix.data) + start, step, count, target, target_step);
  } else {
    widen_line(static_cast<const __half*>(matrix.data) + start, step, count, target, target_step);
  }
}

float load(const void* data, int64_t index, cudaDataType_t type) {
  float value = 0;
  widen_line({.data = data, .type = type}, index, 1, 1, &value, 1);
  return value;
}

/// panel[p][i] = op(matrix)[first + i, p] for the rows that exist; the others keep what they hold.
void pack_rows(const Matrix& matrix, int64_t offset, int64_t first, int64_t num_rows, int64_t k, float* panel) {
  const int64_t rows = std::min<int64_t>(kRows, num_rows - first);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t start = offset + (matrix.transposed ? (first + i) * matrix.ld : first + i);
    widen_line(matrix, start, matrix.transposed ? 1 : matrix.ld, k, panel + i, kRows);
  }
}

/// columns[j][p] = op(matrix)[p, j], padded with zeros to a multiple of kColumns.
std::vector<float> pack_columns(const Matrix& matrix, int64_t offset, int64_t n, int64_t k) {
  std::vector<float> columns(static_cast<size_t>((n + kColumns - 1) / kColumns * kColumns * k), 0.0F);
  for (int64_t j = 0; j < n; ++j) {
    const int64_t start = offset + (matrix.transposed ? j : j * matrix.ld);
    widen_line(matrix, start, matrix.transposed ? matrix.ld : 1, k, columns.data() + j * k, 1);
  }
  return columns;
}

/// sums[j][i] = sum over p of panel[p][i] * columns[j][p], ascending.
void multiply_tile(const float* panel, const float* columns, int64_t k, float (&sums)[kColumns][kRows]) {
  Vector low[kColumns] = {}, high[kColumns] = {};
  for (int64_t p = 0; p < k; ++p) {
    Vector first, second;
    __builtin_memcpy(&first, panel + p * kRows, sizeof first);
    __builtin_memcpy(&second, panel + p * kRows + 8, sizeof second);
#pragma GCC unroll 6
    for (int j = 0; j < kColumns; ++j) {
      const float factor = columns[j * k + p];
      low[j] += first * factor;
      high[j] += second * factor;
    }
  }
  for (int j = 0; j < kColumns; ++j) {
    __builtin_memcpy(sums[j], &low[j], sizeof low[j]);
    __builtin_memcpy(sums[j] + 8, &high[j], sizeof high[j]);
  }
}

void multiply_one(const Gemm& gemm, int64_t batch) {
  const auto offset = [&](const Matrix& matrix) { return batch * matrix.batch_stride; };
  const std::vector<float> columns = pack_columns(gemm.b, offset(gemm.b), gemm.n, gemm.k);
  std::vector<float> panel(static_cast<size_t>(gemm.k * kRows), 0.0F);
  float sums[kColumns][kRows];
  for (int64_t row = 0; row < gemm.m; row += kRows) {
    pack_rows(gemm.a, offset(gemm.a), row, gemm.m, gemm.k, panel.data());
    for (int64_t column = 0; column < gemm.n; column += kColumns) {
      multiply_tile(panel.data(), columns.data() + column * gemm.k, gemm.k, sums);
      for (int64_t j = column; j < std::min(gemm.n, column + kColumns); ++j) {
        for (int64_t i = row; i < std::min(gemm.m, row + kRows); ++i) {
          float value = gemm.alpha * sums[j - column][i - row];
          // beta 0 means that c is not read: it may be NaN.
          if (gemm.beta != 0) value += gemm.beta * load(gemm.c.data, offset(gemm.c) + j * gemm.c.ld + i, gemm.c.type);
          if (gemm.bias != nullptr) value += load(gemm.bias, i, gemm.d.type);
          store(const_cast<void*>(gemm.d.data), offset(gemm.d) + j * gemm.d.ld + i, gemm.d.type, value);
        }
      }
    }
  }
}

/// Bytes from the first element to the last that a product touches.
size_t span_bytes(const Matrix& matrix, int64_t rows, int64_t columns, int64_t batch) {
  if (rows == 0 || columns == 0) return 0;
  if (matrix.transposed) std::swap(rows, columns);
  const int64_t elements = (batch - 1) * matrix.batch_stride + (columns - 1) * matrix.ld + rows;
  return static_cast<size_t>(elements * num_bytes_of(matrix.type));
}

Status check_memory(const Gemm& gemm) {
  const auto outside = [](const char* operand, const void* data, size_t bytes) {
    return Status{cudaErrorIllegalAddress,
                  fmt::format("{}: {} bytes at {} do not lie in one allocation of device or pinned memory", operand,
                              bytes, data)};
  };
  struct Operand {
    const char* name;
    const Matrix& matrix;
    int64_t rows, columns;
    bool used;
  };
  const Operand operands[] = {{"a", gemm.a, gemm.m, gemm.k, true},
                              {"b", gemm.b, gemm.k, gemm.n, true},
                              {"c", gemm.c, gemm.m, gemm.n, gemm.beta != 0},
                              {"d", gemm.d, gemm.m, gemm.n, true}};
  for (const Operand& operand : operands) {
    const size_t bytes = span_bytes(operand.matrix, operand.rows, operand.columns, gemm.batch);
    if (operand.used && !reachable_by_kernels(operand.matrix.data, bytes)) {
      return outside(operand.name, operand.matrix.data, bytes);
    }
  }
  const auto bias_bytes = static_cast<size_t>(gemm.m * num_bytes_of(gemm.d.type));
  if (gemm.bias != nullptr && !reachable_by_kernels(gemm.bias, bias_bytes))
    return outside("bias", gemm.bias, bias_bytes);
  return {};
}

}  // namespace

bool is_supported(cudaDataType_t type) { return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F; }

cublasStatus_t check(const Gemm& gemm) {
  for (const Matrix* matrix : {&gemm.a, &gemm.b, &gemm.c, &gemm.d}) {
    if (!is_supported(matrix->type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool same = gemm.a.type == gemm.b.type && gemm.c.type == gemm.d.type;
  const bool widening = gemm.d.type == gemm.a.type || gemm.d.type == CUDA_R_32F;
  if (!same || !widening) return CUBLAS_STATUS_NOT_SUPPORTED;
  const int64_t a_rows = gemm.a.transposed ? gemm.k : gemm.m, b_rows = gemm.b.transposed ? gemm.n : gemm.k;
  if (gemm.m < 0 || gemm.n < 0 || gemm.k < 0 || gemm.batch < 0 || gemm.a.ld < std::max<int64_t>(1, a_rows) ||
      gemm.b.ld < std::max<int64_t>(1, b_rows) || gemm.c.ld < std::max<int64_t>(1, gemm.m) ||
      gemm.d.ld < std::max<int64_t>(1, gemm.m)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t enqueue_gemm(cudaStream_t stream, const char* name, const Gemm& gemm) {
  if (const cublasStatus_t status = check(gemm)) return status;
  if (gemm.m == 0 || gemm.n == 0 || gemm.batch == 0) return CUBLAS_STATUS_SUCCESS;
  const cudaError_t error = enqueue(stream, name, [gemm] {
    Status status = check_memory(gemm);
    for (int64_t batch = 0; status.code == cudaSuccess && batch < gemm.batch; ++batch) multiply_one(gemm, batch);
    return status;
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace tokenmill::emulation
