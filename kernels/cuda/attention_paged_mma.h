#pragma once
#include <cstdint>
#include <map>

#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/ops.h"

namespace tokenmill::cuda {

/// Attention with matrix instructions over paged keys and values (attention_paged_mma.cu): the memory that it keeps and
/// its launches.
class PagedMmaAttention {
 public:
  /// part_bytes: of device memory for the splits that are computed apart; taken by prepare().
  PagedMmaAttention(CudaMemory& memory, int num_multiprocessors, int64_t part_bytes)
      : memory_(memory), plans_(memory), num_multiprocessors_(num_multiprocessors), part_bytes_(part_bytes) {}

  /// 16-bit types, keys and values of 64, 96, 128 or 256 dimensions.
  static bool has_kernel(DType dtype, int64_t k_dim, int64_t v_dim);
  /// Shared memory that a block takes at this head size.
  static int64_t shared_bytes(int64_t head_dim);
  /// Takes the memory that does not depend on a step's size, for such heads. Before any step that has them.
  void prepare(DType dtype, int64_t head_dim);
  /// The rest, for a group of layers in steps of at most these sizes.
  void reserve(const KvSpec& spec, const WorkspaceRequest& request);
  void start_step() { plans_.start_step(); }
  void run(cudaStream_t stream, const TensorView& out, const TensorView& q, const StepTensors& step, KvLayer kv,
           const AttentionParams& params);
  /// Bytes that steps of these sizes take at most.
  int64_t workspace_bytes(const WorkspaceRequest& request);

 private:
  template <typename T, int kDim>
  void launch(cudaStream_t stream, const TensorView& out, const TensorView& q, const StepTensors& step, KvLayer kv,
              const AttentionParams& params);
  /// Of a kernel with these resources: blocks that run at once on the device.
  int resident_blocks(const void* kernel, int threads, int shared_bytes);
  int64_t folded_bytes(DType dtype, int64_t head_dim);
  AttentionShape shape_of(const KvSpec& spec, int64_t num_heads, int64_t window) const;

  CudaMemory& memory_;
  AttentionPlans plans_;
  int num_multiprocessors_;
  int64_t part_bytes_;
  Buffer parts_, folded_;
  std::map<const void*, int> resident_;  // by kernel
};

}  // namespace tokenmill::cuda
