#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/cuda_check.h"
#include "kernels/ops.h"

namespace tokenmill::cuda {

struct AttentionLimits {
  int64_t part_bytes;  ///< device memory for the splits that are computed apart; taken by prepare()
  int32_t mates;       ///< as in AttentionShape
};

/// What the attention backends with matrix instructions have in common: the work lists of a step, the memory that they
/// keep, the sizes of launches, and the kernel that merges splits which were computed apart.
class PagedAttention {
 public:
  virtual ~PagedAttention() = default;
  PagedAttention(const PagedAttention&) = delete;
  PagedAttention& operator=(const PagedAttention&) = delete;

  /// Takes the memory that does not depend on a step's size, for such heads. Before any step that has them.
  void prepare(DType dtype, int64_t head_dim);
  /// The rest, for a KV group of the request in steps of at most these sizes.
  void reserve(int kv_group, const WorkspaceRequest& request);
  void start_step() { plans_.start_step(); }
  /// As Ops::attention; the pool's heads are of a kind that the backend has a kernel for.
  virtual void run(cudaStream_t stream, const TensorView& out, const TensorView& q, const StepTensors& step, KvLayer kv,
                   const AttentionParams& params) = 0;
  /// Bytes that steps of these sizes take at most for some of the request's KV groups: those that this backend
  /// computes.
  int64_t workspace_bytes(const WorkspaceRequest& request, std::span<const int> kv_groups);

 protected:
  PagedAttention(CudaMemory& memory, int num_multiprocessors, AttentionLimits limits, AttentionTiles tiles)
      : memory_(memory), plans_(memory), num_multiprocessors_(num_multiprocessors), limits_(limits), tiles_(tiles) {}

  /// Bytes that blocks keep between splits, for such heads.
  virtual int64_t folded_bytes(DType dtype, int64_t head_dim) = 0;
  /// Of a kernel with these resources: blocks that run at once on the device.
  int resident_blocks(const void* kernel, int threads, int shared_bytes);
  float* folded() const { return static_cast<float*>(folded_.data()); }

  /// What the launches of one call need.
  struct Launches {
    AttentionWork work;
    AttentionParts parts;
    int64_t units;  ///< items times KV heads, at most
    bool merges;    ///< some splits may be computed apart
  };
  Launches start(cudaStream_t stream, const StepTensors& step, KvLayer kv, int64_t num_heads,
                 const AttentionParams& params);
  /// What a block of a backend's walk takes.
  struct WalkBlock {
    const char* name;
    int threads, shared_bytes;
  };
  /// Enqueues the walk over the work list, by as many blocks as run at once.
  template <typename... Parameters, typename... Arguments>
  void walk(cudaStream_t stream, void (*kernel)(Parameters...), const WalkBlock& block, const Launches& launches,
            Arguments&&... arguments) {
    const int resident = resident_blocks(reinterpret_cast<const void*>(kernel), block.threads, block.shared_bytes);
    TM_CUDA(gpu::launch(kernel,
                        {.grid = dim3(static_cast<unsigned>(std::clamp<int64_t>(launches.units, 1, resident))),
                         .block = dim3(static_cast<unsigned>(block.threads)),
                         .smem = static_cast<size_t>(block.shared_bytes),
                         .stream = stream,
                         .name = block.name},
                        std::forward<Arguments>(arguments)...));
  }
  /// Enqueues the merge of what a call has computed apart.
  template <typename T, int kDim>
  void merge(cudaStream_t stream, const AttentionCall<T>& call, const Launches& launches);

 private:
  AttentionShape shape_of(const KvSpec& spec, int kv_group, int64_t num_heads, int64_t window) const;

  CudaMemory& memory_;
  AttentionPlans plans_;
  int num_multiprocessors_;
  AttentionLimits limits_;
  AttentionTiles tiles_;
  Buffer parts_, folded_;
  std::map<const void*, int> resident_;  // by kernel
};

}  // namespace tokenmill::cuda
