// The stand-ins of cuBLAS and cuBLASLt against a f64 product.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/support/emulated_device.h"

using namespace tokenmill;
using test::DeviceArray;
using test::DeviceStream;
using test::EmulatedDevice;

namespace {

float to_float(float value) { return value; }
float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
float to_float(__half value) { return __half2float(value); }
void from_float(float value, float& out) { out = value; }
void from_float(float value, __nv_bfloat16& out) { out = __float2bfloat16(value); }
void from_float(float value, __half& out) { out = __float2half(value); }

template <typename T>
constexpr cudaDataType_t kType = CUDA_R_32F;
template <>
constexpr cudaDataType_t kType<__nv_bfloat16> = CUDA_R_16BF;
template <>
constexpr cudaDataType_t kType<__half> = CUDA_R_16F;

/// Half a unit in the last place, and a little for the f32 sums.
template <typename T>
constexpr double kTolerance = 1e-6;
template <>
constexpr double kTolerance<__nv_bfloat16> = 1.0 / 250;
template <>
constexpr double kTolerance<__half> = 1.0 / 2000;

template <typename T>
std::vector<T> random_values(int64_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<T> values(static_cast<size_t>(size));
  for (T& value : values) from_float(uniform(random), value);
  return values;
}

struct Problem {
  int m, n, k;
  bool transa, transb;
  float alpha, beta;
  int lda() const { return (transa ? k : m) + 3; }
  int ldb() const { return (transb ? n : k) + 1; }
  int ldc() const { return m + 2; }
  int64_t a_size() const { return int64_t{lda()} * (transa ? m : k); }
  int64_t b_size() const { return int64_t{ldb()} * (transb ? k : n); }
  int64_t c_size() const { return int64_t{ldc()} * n; }
};

template <typename In, typename Out>
double expected(const Problem& problem, const In* a, const In* b, const Out* c, int row, int column) {
  double sum = 0;
  for (int p = 0; p < problem.k; ++p) {
    const int lda = problem.lda(), ldb = problem.ldb();
    sum += double{to_float(a[problem.transa ? p + row * lda : row + p * lda])} *
           to_float(b[problem.transb ? column + p * ldb : p + column * ldb]);
  }
  return problem.alpha * sum + (problem.beta == 0 ? 0 : problem.beta * to_float(c[row + column * problem.ldc()]));
}

template <typename In, typename Out>
void check_strided_batch(const Problem& problem, int batch) {
  CAPTURE(problem.m);
  CAPTURE(problem.n);
  CAPTURE(problem.k);
  CAPTURE(problem.transa);
  CAPTURE(problem.transb);
  const auto a = random_values<In>(problem.a_size() * batch, 1), b = random_values<In>(problem.b_size() * batch, 2);
  auto c = random_values<Out>(problem.c_size() * batch, 3);
  if (problem.beta == 0) {
    for (Out& value : c) from_float(std::numeric_limits<float>::quiet_NaN(), value);  // must not be read
  }
  const DeviceArray<In> d_a(a), d_b(b);
  const DeviceArray<Out> d_c(c);
  const DeviceStream stream;
  cublasHandle_t handle;
  REQUIRE(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasSetStream(handle, stream) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasGemmStridedBatchedEx(
              handle, problem.transa ? CUBLAS_OP_T : CUBLAS_OP_N, problem.transb ? CUBLAS_OP_T : CUBLAS_OP_N, problem.m,
              problem.n, problem.k, &problem.alpha, d_a.data(), kType<In>, problem.lda(), problem.a_size(), d_b.data(),
              kType<In>, problem.ldb(), problem.b_size(), &problem.beta, d_c.data(), kType<Out>, problem.ldc(),
              problem.c_size(), batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  const auto result = d_c.read();
  double worst = 0;
  for (int z = 0; z < batch; ++z) {
    for (int j = 0; j < problem.n; ++j) {
      for (int i = 0; i < problem.m; ++i) {
        const double want = expected(problem, a.data() + problem.a_size() * z, b.data() + problem.b_size() * z,
                                     c.data() + problem.c_size() * z, i, j);
        const double got = to_float(result[problem.c_size() * z + i + j * problem.ldc()]);
        worst = std::max(worst, std::isfinite(got) ? std::abs(got - want) / (1 + std::abs(want)) : INFINITY);
      }
      for (int i = problem.m; i < problem.ldc(); ++i) {  // between the columns nothing is written
        const size_t at = problem.c_size() * z + i + j * problem.ldc();
        CHECK(std::memcmp(&result[at], &c[at], sizeof(Out)) == 0);
      }
    }
  }
  CHECK(worst < kTolerance<Out> * std::sqrt(problem.k + 1.0));
  cublasDestroy(handle);
}

/// d[m, n] = a^T[k, m] b[k, n] + bias, all bf16, as a linear layer calls cuBLASLt.
struct LtProblem {
  static constexpr int kM = 5, kN = 3, kK = 8;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;

  LtProblem() {
    const cublasOperation_t transpose = CUBLAS_OP_T;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose);
    cublasLtMatrixLayoutCreate(&a, CUDA_R_16BF, kK, kM, kK);
    cublasLtMatrixLayoutCreate(&b, CUDA_R_16BF, kK, kN, kK);
    cublasLtMatrixLayoutCreate(&d, CUDA_R_16BF, kM, kN, kM);
    cublasLtMatmulPreferenceCreate(&preference);
  }
  ~LtProblem() {
    cublasLtMatmulPreferenceDestroy(preference);
    for (auto* layout : {a, b, d}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
  }
  LtProblem(const LtProblem&) = delete;
  LtProblem& operator=(const LtProblem&) = delete;

  cublasStatus_t set_bias(const void* bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    return cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
  }
  cublasStatus_t choose(uint64_t workspace_bytes) {
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                         sizeof workspace_bytes);
    return cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, d, d, preference, 1, &result, &found);
  }
  cublasStatus_t multiply(const void* a_data, const void* b_data, void* d_data, void* workspace, size_t bytes,
                          cudaStream_t stream) {
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle, desc, &one, a_data, a, b_data, b, &zero, d_data, d, d_data, d, &result.algo,
                          workspace, bytes, stream);
  }
};

}  // namespace

TEST_CASE("a strided batch of products matches the f64 product for every layout and type") {
  const EmulatedDevice device;
  for (const bool transa : {false, true}) {
    for (const bool transb : {false, true}) {
      check_strided_batch<float, float>({17, 7, 33, transa, transb, 1.5F, 0.5F}, 3);
      check_strided_batch<__nv_bfloat16, __nv_bfloat16>({16, 6, 64, transa, transb, 1, 0}, 1);
      check_strided_batch<__nv_bfloat16, float>({31, 1, 5, transa, transb, 1, 0}, 2);
      check_strided_batch<__half, __half>({1, 13, 40, transa, transb, 1, 1}, 1);
    }
  }
  check_strided_batch<float, float>({3, 2, 0, false, false, 1, 2}, 1);  // k 0: beta * c
}

TEST_CASE("a product of bf16 has the same bits in a column whatever the other columns are") {
  const EmulatedDevice device;
  const int m = 20, k = 100, n = 9;
  const DeviceArray<__nv_bfloat16> a(random_values<__nv_bfloat16>(m * k, 1)), b(random_values<__nv_bfloat16>(k * n, 2));
  cublasHandle_t handle;
  REQUIRE(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  const float one = 1, zero = 0;
  const auto multiply = [&](int columns) {
    const DeviceArray<float> c(static_cast<size_t>(m * columns));
    REQUIRE(cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, m, columns, k, &one, a.data(), CUDA_R_16BF, k, b.data(),
                         CUDA_R_16BF, k, &zero, c.data(), CUDA_R_32F, m, CUBLAS_COMPUTE_32F,
                         CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
    auto values = c.read();
    values.resize(m);
    return values;
  };
  CHECK(multiply(1) == multiply(n));
  cublasDestroy(handle);
}

TEST_CASE("wrong types and leading dimensions are refused; operands outside device memory fail when the product runs") {
  const EmulatedDevice device;
  const DeviceArray<float> a(16), c(16);
  std::vector<float> on_host(16);
  cublasHandle_t handle;
  REQUIRE(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  const float one = 1, zero = 0;
  const auto multiply = [&](const void* b, cudaDataType_t b_type, int lda, int n) {
    return cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, n, 4, &one, a.data(), CUDA_R_32F, lda, b, b_type, 4, &zero,
                        c.data(), CUDA_R_32F, 4, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  };
  CHECK(multiply(a.data(), CUDA_R_16BF, 4, 4) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(multiply(a.data(), CUDA_R_32F, 3, 4) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(multiply(a.data(), CUDA_R_32F, 4, 0) == CUBLAS_STATUS_SUCCESS);
  CHECK(multiply(a.data(), CUDA_R_32F, 4, 4) == CUBLAS_STATUS_SUCCESS);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  for (const auto& [b, n] : {std::pair<const void*, int>{on_host.data(), 4}, {a.data(), 5}}) {
    CHECK(multiply(b, CUDA_R_32F, 4, n) == CUBLAS_STATUS_SUCCESS);
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    CHECK(emulation::last_failure().find("cublasGemm: b: ") == 0);
    emulation::reset();
  }
  cublasDestroy(handle);
}

TEST_CASE("cublasLt adds the bias of a row and replays in a graph") {
  const EmulatedDevice device;
  LtProblem problem;
  const int m = LtProblem::kM, n = LtProblem::kN, k = LtProblem::kK;
  const auto a = random_values<__nv_bfloat16>(k * m, 1), b = random_values<__nv_bfloat16>(k * n, 2);
  const auto bias = random_values<__nv_bfloat16>(m, 3);
  const DeviceArray<__nv_bfloat16> d_a(a), d_b(b), d_bias(bias), d_d(m * n);
  REQUIRE(problem.set_bias(d_bias.data()) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(problem.choose(0) == CUBLAS_STATUS_SUCCESS);
  CHECK(problem.found == 1);
  CHECK(problem.result.workspaceSize == 0);
  const DeviceStream stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  REQUIRE(problem.multiply(d_a.data(), d_b.data(), d_d.data(), nullptr, 0, stream) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  REQUIRE(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
  CHECK(std::isnan(to_float(d_d.read()[0])));
  REQUIRE(cudaGraphLaunch(exec, stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  const auto result = d_d.read();
  for (int j = 0; j < n; ++j) {
    for (int i = 0; i < m; ++i) {
      double want = to_float(bias[i]);
      for (int p = 0; p < k; ++p) want += double{to_float(a[i * k + p])} * to_float(b[j * k + p]);
      CHECK(to_float(result[j * m + i]) == doctest::Approx(want).epsilon(0.01));
    }
  }
  cudaGraphDestroy(graph);
  cudaGraphExecDestroy(exec);
}

TEST_CASE("cublasLt wants the workspace its algorithm was promised, shapes that fit and a bias of the output's type") {
  const EmulatedDevice device;
  LtProblem problem;
  const DeviceArray<__nv_bfloat16> data(64);
  const DeviceStream stream;
  REQUIRE(problem.choose(4096) == CUBLAS_STATUS_SUCCESS);
  CHECK(problem.result.workspaceSize == 4096);
  const DeviceArray<char> workspace(4096);
  const auto multiply = [&](void* memory, size_t bytes) {
    return problem.multiply(data.data(), data.data(), data.data(), memory, bytes, stream);
  };
  CHECK(multiply(nullptr, 0) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(multiply(workspace.data(), 4095) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(multiply(workspace.data(), 4097) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(multiply(workspace.data(), 4096) == CUBLAS_STATUS_SUCCESS);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  const int32_t f32 = CUDA_R_32F;
  CHECK(problem.set_bias(data.data()) == CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulDescSetAttribute(problem.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &f32, sizeof f32);
  CHECK(problem.choose(0) == CUBLAS_STATUS_NOT_SUPPORTED);
  const uint64_t rows = LtProblem::kK - 1;
  cublasLtMatrixLayoutSetAttribute(problem.b, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof rows);
  CHECK(problem.choose(0) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(problem.found == 0);
}
