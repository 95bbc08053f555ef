#include "kernels/cuda/matmul.h"

#include "kernels/core/check.h"
#include "kernels/device/cuda_check.h"

namespace tokenmill::cuda {
namespace {

cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return CUDA_R_32F;
    case DType::kBF16: return CUDA_R_16BF;
    case DType::kF16: return CUDA_R_16F;
    default: TM_ASSERT(false, "a product of {}", to_string(dtype));
  }
  return CUDA_R_32F;
}

/// Rows for which the algorithm is chosen: between a full batch of decodes and a chunk of prefill. On whole tiles, so
/// that any number of rows fits it.
constexpr int64_t kTypicalRows = 256;

/// What the widest load takes; the storage of weights has it.
constexpr uint32_t kVectorBytes = 16;

bool has_aligned_rows(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data()) % kVectorBytes == 0 &&
         view.row_stride() * dtype_size(view.dtype()) % kVectorBytes == 0;
}

/// Owners of cuBLASLt's handles.
template <typename Handle, cublasStatus_t (*destroy)(Handle)>
struct Owner {
  Handle handle = nullptr;
  Owner() = default;
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() {
    if (handle != nullptr) destroy(handle);
  }
};
using Descriptor = Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <typename T>
void set(const Descriptor& desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  TM_CUBLAS(cublasLtMatmulDescSetAttribute(desc.handle, attribute, &value, sizeof(value)));
}

template <typename T>
void set(const Layout& layout, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
  TM_CUBLAS(cublasLtMatrixLayoutSetAttribute(layout.handle, attribute, &value, sizeof(value)));
}

template <typename T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  TM_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof(value)));
}

}  // namespace

/// cuBLASLt is column-major: out^T [N, T] = W x^T, of which W lies as a matrix [K, N] to be transposed.
struct Matmul::Plan {
  Descriptor desc;
  Layout weights, x, residual, out;
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace_bytes = 0;

  void set_rows(int64_t rows, int64_t x_stride, int64_t residual_stride, int64_t out_stride) {
    const auto count = static_cast<uint64_t>(rows);
    set(x, CUBLASLT_MATRIX_LAYOUT_COLS, count);
    set(x, CUBLASLT_MATRIX_LAYOUT_LD, x_stride);
    set(residual, CUBLASLT_MATRIX_LAYOUT_COLS, count);
    set(residual, CUBLASLT_MATRIX_LAYOUT_LD, residual_stride);
    set(out, CUBLASLT_MATRIX_LAYOUT_COLS, count);
    set(out, CUBLASLT_MATRIX_LAYOUT_LD, out_stride);
  }
};

Matmul::Matmul(cudaStream_t stream, Buffer workspace) : stream_(stream), workspace_(std::move(workspace)) {
  TM_CUBLAS(cublasLtCreate(&handle_));
}

Matmul::~Matmul() {
  plans_.clear();
  cublasLtDestroy(handle_);
}

Matmul::Plan& Matmul::plan(const Key& key) {
  std::unique_ptr<Plan>& slot = plans_[key];
  if (slot) return *slot;
  auto made = std::make_unique<Plan>();
  TM_CUBLAS(cublasLtMatmulDescCreate(&made->desc.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(made->desc, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (key.bias) set(made->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  const auto n = static_cast<uint64_t>(key.out_features), k = static_cast<uint64_t>(key.in_features);
  const auto in_type = cuda_type(key.weights), out_type = cuda_type(key.out);
  TM_CUBLAS(cublasLtMatrixLayoutCreate(&made->weights.handle, in_type, k, n, key.in_features));
  TM_CUBLAS(cublasLtMatrixLayoutCreate(&made->x.handle, in_type, k, kTypicalRows, key.in_features));
  TM_CUBLAS(cublasLtMatrixLayoutCreate(&made->residual.handle, out_type, n, kTypicalRows, key.out_features));
  TM_CUBLAS(cublasLtMatrixLayoutCreate(&made->out.handle, out_type, n, kTypicalRows, key.out_features));
  Preference preference;
  TM_CUBLAS(cublasLtMatmulPreferenceCreate(&preference.handle));
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_.num_bytes()));
  // Split-K adds parts up in an order of its own: only algorithms without it.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
  // Rows of x and out are slices of wider matrices at times. Unless told, the library takes 256 bytes for granted.
  const auto x_alignment = key.aligned ? kVectorBytes : static_cast<uint32_t>(dtype_size(key.weights));
  const auto out_alignment = key.aligned ? kVectorBytes : static_cast<uint32_t>(dtype_size(key.out));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kVectorBytes);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, x_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out_alignment);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  TM_CUBLAS(cublasLtMatmulAlgoGetHeuristic(handle_, made->desc.handle, made->weights.handle, made->x.handle,
                                           made->residual.handle, made->out.handle, preference.handle, 1, &result,
                                           &found));
  if (found < 1) {
    throw Error(ErrorKind::kDevice, "cuBLASLt has no product for weights {} [{}, {}] to {}", to_string(key.weights),
                key.out_features, key.in_features, to_string(key.out));
  }
  made->algorithm = result.algo;
  made->workspace_bytes = result.workspaceSize;
  slot = std::move(made);
  return *slot;
}

void Matmul::run(TensorView out, TensorView x, const void* weights, TensorView bias, TensorView residual) {
  TM_ASSERT(!bias.defined() || bias.dtype() == out.dtype(), "bias {} for {}", bias.describe(), out.describe());
  const bool aligned =
      has_aligned_rows(x) && has_aligned_rows(out) && (!residual.defined() || has_aligned_rows(residual));
  Plan& p = plan({out.cols(), x.cols(), x.dtype(), out.dtype(), bias.defined(), aligned});
  if (bias.defined()) set(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data());
  const TensorView& added = residual.defined() ? residual : out;
  p.set_rows(x.rows(), x.row_stride(), added.row_stride(), out.row_stride());
  const float alpha = 1, beta = residual.defined() ? 1 : 0;
  TM_CUBLAS(cublasLtMatmul(handle_, p.desc.handle, &alpha, weights, p.weights.handle, x.data(), p.x.handle, &beta,
                           added.data(), p.residual.handle, out.data(), p.out.handle, &p.algorithm, workspace_.data(),
                           p.workspace_bytes, stream_));
}

}  // namespace tokenmill::cuda
