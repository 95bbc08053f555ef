#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "kernels/core/tensor.h"
#include "kernels/device/cuda.h"
#include "kernels/device/memory.h"

namespace tokenmill::cuda {

/// Products y = x W^T on one stream through cuBLASLt. The algorithm is chosen once per (shape of W, types, epilogue) and
/// used for every number of rows, without split-K: a row's bits do not depend on the rows beside it.
class Matmul {
 public:
  /// Bytes of device memory that products may use while they run.
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  /// workspace: device memory of kWorkspaceBytes.
  Matmul(cudaStream_t stream, Buffer workspace);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  /// out [T, N] = x [T, K] weights^T (+ bias) (+ residual), sums in f32, rounded once. weights [N, K] dense, of x's
  /// dtype; bias [N] of out's dtype or undefined; residual [T, N] of out's dtype or undefined, may alias out.
  void run(TensorView out, TensorView x, const void* weights, TensorView bias, TensorView residual);

 private:
  struct Key {
    int64_t out_features, in_features;
    DType weights, out;
    bool bias;
    bool aligned;  // rows of x, residual and out start at multiples of 16 bytes
    bool operator<(const Key& o) const {
      return std::tie(out_features, in_features, weights, out, bias, aligned) <
             std::tie(o.out_features, o.in_features, o.weights, o.out, o.bias, o.aligned);
    }
  };
  struct Plan;
  Plan& plan(const Key& key);

  cudaStream_t stream_;
  Buffer workspace_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace tokenmill::cuda
