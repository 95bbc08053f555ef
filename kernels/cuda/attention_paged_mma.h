#pragma once
#include <cstdint>

#include "kernels/cuda/attention_paged.h"

namespace tokenmill::cuda {

/// Attention with matrix instructions over paged keys and values (attention_paged_mma.cu).
class PagedMmaAttention final : public PagedAttention {
 public:
  PagedMmaAttention(CudaMemory& memory, int num_multiprocessors, AttentionLimits limits);
  /// 16-bit types, keys and values of 64, 96, 128 or 256 dimensions.
  static bool has_kernel(DType dtype, int64_t k_dim, int64_t v_dim);
  /// Shared memory that a block takes at this head size.
  static int64_t shared_bytes(int64_t head_dim);
  void run(cudaStream_t stream, const TensorView& out, const TensorView& q, const StepTensors& step, KvLayer kv,
           const AttentionParams& params) override;

 private:
  template <typename T, int kDim>
  void launch(cudaStream_t stream, const TensorView& out, const TensorView& q, const StepTensors& step, KvLayer kv,
              const AttentionParams& params);
  int64_t folded_bytes(DType dtype, int64_t head_dim) override;
};

}  // namespace tokenmill::cuda
