// The functions of cuBLASLt that tokenmill calls. Scalars lie on the host; of the epilogues none and the bias.
#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "kernels/emulation/blas/gemm.h"

struct cublasLtContext {};

namespace tokenmill::emulation {
namespace {

struct MatmulDesc {
  cublasOperation_t transa = CUBLAS_OP_N, transb = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  std::optional<cudaDataType_t> bias_type;  // none: D's
};

struct Layout {
  cudaDataType_t type = CUDA_R_32F;
  int64_t rows = 0, columns = 0, ld = 0, batch_stride = 0;
  int32_t batch = 1;
};

struct Preference {
  uint64_t max_workspace_bytes = 0;
};

/// What an algorithm asks for when it may: more would only be wasted here, but a caller that forgets it must be
/// noticed.
constexpr uint64_t kWorkspaceBytes = 1 << 20;
constexpr uint64_t kAlgorithmMark = 0x746F6B656E6D696CULL;

template <typename Internal, typename Opaque>
Internal* internal(Opaque* handle) {
  return reinterpret_cast<Internal*>(handle);
}

/// Copies an attribute of exactly T's size.
template <typename T>
cublasStatus_t take(T& target, const void* source, size_t size) {
  if (source == nullptr || size != sizeof target) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&target, source, size);
  return CUBLAS_STATUS_SUCCESS;
}

/// An attribute that may be set to its only supported value.
template <typename T>
cublasStatus_t take_only(T allowed, const void* source, size_t size) {
  T value;
  if (const cublasStatus_t status = take(value, source, size)) return status;
  return value == allowed ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t take_operation(cublasOperation_t& target, const void* source, size_t size) {
  cublasOperation_t value;
  if (const cublasStatus_t status = take(value, source, size)) return status;
  if (value != CUBLAS_OP_N && value != CUBLAS_OP_T) return CUBLAS_STATUS_NOT_SUPPORTED;
  target = value;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t take_epilogue(cublasLtEpilogue_t& target, const void* source, size_t size) {
  cublasLtEpilogue_t value;
  if (const cublasStatus_t status = take(value, source, size)) return status;
  if (value != CUBLASLT_EPILOGUE_DEFAULT && value != CUBLASLT_EPILOGUE_BIAS) return CUBLAS_STATUS_NOT_SUPPORTED;
  target = value;
  return CUBLAS_STATUS_SUCCESS;
}

/// The product that descriptor and layouts describe; nothing if their shapes do not go together.
std::optional<Gemm> make_gemm(const MatmulDesc& desc, const Layout& a, const Layout& b, const Layout& c,
                              const Layout& d) {
  const bool transa = desc.transa == CUBLAS_OP_T, transb = desc.transb == CUBLAS_OP_T;
  Gemm gemm;
  gemm.m = d.rows;
  gemm.n = d.columns;
  gemm.k = transa ? a.rows : a.columns;
  gemm.batch = d.batch;
  const bool fits = (transa ? a.columns : a.rows) == gemm.m && (transb ? b.rows : b.columns) == gemm.n &&
                    (transb ? b.columns : b.rows) == gemm.k && c.rows == gemm.m && c.columns == gemm.n &&
                    a.batch == d.batch && b.batch == d.batch && c.batch == d.batch;
  if (!fits) return std::nullopt;
  gemm.a = {nullptr, a.type, a.ld, a.batch_stride, transa};
  gemm.b = {nullptr, b.type, b.ld, b.batch_stride, transb};
  gemm.c = {nullptr, c.type, c.ld, c.batch_stride, false};
  gemm.d = {nullptr, d.type, d.ld, d.batch_stride, false};
  return gemm;
}

/// The type of D is the only one that a bias may have.
bool bias_fits(const MatmulDesc& desc, const Layout& d) {
  return desc.epilogue != CUBLASLT_EPILOGUE_BIAS || desc.bias_type.value_or(d.type) == d.type;
}

}  // namespace
}  // namespace tokenmill::emulation

using namespace tokenmill::emulation;  // the definitions below are the C functions of cublasLt.h

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* handle, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *handle = reinterpret_cast<cublasLtMatmulDesc_t>(new MatmulDesc);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
  delete internal<MatmulDesc>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  auto& desc = *internal<MatmulDesc>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take_operation(desc.transa, value, size);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take_operation(desc.transb, value, size);
    case CUBLASLT_MATMUL_DESC_TRANSC:
      return take_only(CUBLAS_OP_N, value, size);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return take_only(CUBLASLT_POINTER_MODE_HOST, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take_epilogue(desc.epilogue, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(desc.bias, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: {
      cudaDataType_t type;
      if (const cublasStatus_t status = take(type, value, size)) return status;
      desc.bias_type = type;
      return CUBLAS_STATUS_SUCCESS;
    }
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* handle, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  *handle = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{.type = type, .rows = int64_t(rows), .columns = int64_t(columns), .ld = ld});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
  delete internal<Layout>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t size) {
  auto& layout = *internal<Layout>(handle);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return take(layout.type, value, size);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return take_only(CUBLASLT_ORDER_COL, value, size);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return take(layout.rows, value, size);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return take(layout.columns, value, size);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return take(layout.ld, value, size);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return take(layout.batch, value, size);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return take(layout.batch_stride, value, size);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* handle) {
  *handle = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
  delete internal<Preference>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t size) {
  uint32_t any;  // hints that choose between algorithms: there is one
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(internal<Preference>(handle)->max_workspace_bytes, value, size);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(any, value, size);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  *returned = 0;
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const auto gemm = make_gemm(*internal<MatmulDesc>(desc), *internal<Layout>(a), *internal<Layout>(b),
                              *internal<Layout>(c), *internal<Layout>(d));
  if (!gemm) return CUBLAS_STATUS_INVALID_VALUE;
  if (!bias_fits(*internal<MatmulDesc>(desc), *internal<Layout>(d))) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (const cublasStatus_t status = check(*gemm)) return status;
  cublasLtMatmulHeuristicResult_t& result = results[0];
  result = {};
  result.state = CUBLAS_STATUS_SUCCESS;
  result.workspaceSize = std::min(kWorkspaceBytes, internal<Preference>(preference)->max_workspace_bytes);
  result.wavesCount = 1;
  result.algo.data[0] = kAlgorithmMark;
  result.algo.data[1] = result.workspaceSize;
  *returned = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc_handle, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const auto& desc = *internal<MatmulDesc>(desc_handle);
  auto gemm = make_gemm(desc, *internal<Layout>(a_layout), *internal<Layout>(b_layout), *internal<Layout>(c_layout),
                        *internal<Layout>(d_layout));
  if (!gemm || alpha == nullptr || beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (!in_device_memory(workspace, workspace_bytes)) return CUBLAS_STATUS_INVALID_VALUE;
  if (algorithm != nullptr && (algorithm->data[0] != kAlgorithmMark || workspace_bytes < algorithm->data[1])) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  gemm->alpha = *static_cast<const float*>(alpha);
  gemm->beta = *static_cast<const float*>(beta);
  gemm->a.data = a;
  gemm->b.data = b;
  gemm->c.data = c;
  gemm->d.data = d;
  if (!bias_fits(desc, *internal<Layout>(d_layout))) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (desc.epilogue == CUBLASLT_EPILOGUE_BIAS) {
    if (desc.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    gemm->bias = desc.bias;
  }
  return enqueue_gemm(stream, "cublasLtMatmul", *gemm);
}
