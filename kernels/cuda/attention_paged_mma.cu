// attention, backend "paged_mma": formula in kernels/ops.h; bf16 and f16, k_dim == v_dim of 64, 96, 128 or 256, sm_80
// and later.
// Work:   blocks walk over the step's work list (attention_plan.cu) times the KV heads. Rows are tokens times the query
//         heads of a group, so keys and values are read once for all of them: 64 rows in prefill, 16 in decode, up to 64
//         there over a split that lies in the same KV blocks for several sequences. Tiles of 64 positions come through
//         the block table by cp.async, one tile ahead of the products (m16n8k16). A decode row's splits of 512
//         positions are computed by different blocks, and a second kernel merges them (attention_paged.cu).
// Order:  attention_walk.cuh; splits are merged in ascending order, by the same function in both kernels.
// Bytes:  keys and values once per row tile; q and out once; parts of (head size + 2) floats per decode row and split.
// Rounds: the weights of the second product to the dtype; the sum of weights is of the rounded ones.
// Limits: a NaN or infinity among a sequence's own values reaches earlier rows of the same chunk where they share a
// tile
//         of positions.
// Spills: none (kernels/README.md). Measured: not yet on a device.
#include "kernels/cuda/attention_paged_mma.h"
#include "kernels/cuda/attention_walk.cuh"

namespace tokenmill::cuda {
namespace {

template <typename T, int kDim>
__global__ void __launch_bounds__(MmaBlock<kDim>::kThreads)
    attention_paged_mma_kernel(AttentionCall<T> call, AttentionWork work, AttentionParts parts,
                               FoldedStates<kDim> folded, bool wide) {
  GPU_DYN_SHARED(shared);
  const int heads = call.layout.num_kv_heads, units = work.counts->items * heads;
  for (int unit = static_cast<int>(blockIdx.x); unit < units; unit += static_cast<int>(gridDim.x)) {
    const AttentionItem item = work.items[unit / heads];
    const AttentionRows<T, kDim> rows(call, item, unit % heads);
    if (item.num_rows <= kMmaSmallRows) {
      AttentionWalk<T, kDim, 1>(rows, shared, folded.own()).compute(parts, wide);
    } else {
      AttentionWalk<T, kDim, 4>(rows, shared, folded.own()).compute(parts, wide);
    }
  }
}

/// Calls function.template operator()<T, kDim>() for what has_kernel.
template <typename Function>
void dispatch_kernel(DType dtype, int64_t head_dim, Function&& function) {
  const auto with_dim = [&]<typename T>() {
    switch (head_dim) {
      case 64:
        return function.template operator()<T, 64>();
      case 96:
        return function.template operator()<T, 96>();
      case 128:
        return function.template operator()<T, 128>();
      default:
        return function.template operator()<T, 256>();
    }
  };
  dtype == DType::kBF16 ? with_dim.template operator()<__nv_bfloat16>() : with_dim.template operator()<__half>();
}

}  // namespace

PagedMmaAttention::PagedMmaAttention(CudaMemory& memory, int num_multiprocessors, AttentionLimits limits)
    : PagedAttention(memory, num_multiprocessors, limits, {.rows = kMmaRows, .small_rows = kMmaSmallRows, .split = kKvSplit}) {}

bool PagedMmaAttention::has_kernel(DType dtype, int64_t k_dim, int64_t v_dim) {
  return (dtype == DType::kBF16 || dtype == DType::kF16) && k_dim == v_dim &&
         (k_dim == 64 || k_dim == 96 || k_dim == 128 || k_dim == 256);
}

int64_t PagedMmaAttention::shared_bytes(int64_t head_dim) {
  int64_t bytes = 0;
  dispatch_kernel(DType::kBF16, head_dim, [&]<typename T, int kDim>() { bytes = MmaBlock<kDim>::kSharedBytes; });
  return bytes;
}

int64_t PagedMmaAttention::folded_bytes(DType dtype, int64_t head_dim) {
  int64_t bytes = 0;
  dispatch_kernel(dtype, head_dim, [&]<typename T, int kDim>() {
    const auto* kernel = reinterpret_cast<const void*>(attention_paged_mma_kernel<T, kDim>);
    bytes = resident_blocks(kernel, MmaBlock<kDim>::kThreads, MmaBlock<kDim>::kSharedBytes) *
            FoldedStates<kDim>::kBlockBytes;
  });
  return bytes;
}

template <typename T, int kDim>
void PagedMmaAttention::launch(cudaStream_t stream, const TensorView& out, const TensorView& q, const StepTensors& step,
                               KvLayer kv, const AttentionParams& params) {
  using Block = MmaBlock<kDim>;
  const AttentionCall<T> call = make_attention_call<T>(out, q, step, kv, params);
  const Launches launches = start(stream, step, kv, call.num_heads, params);
  walk(stream, attention_paged_mma_kernel<T, kDim>, {"attention_paged_mma", Block::kThreads, Block::kSharedBytes},
       launches, call, launches.work, launches.parts, FoldedStates<kDim>{folded()}, all_aligned({q}));
  merge<T, kDim>(stream, call, launches);
}

void PagedMmaAttention::run(cudaStream_t stream, const TensorView& out, const TensorView& q, const StepTensors& step,
                            KvLayer kv, const AttentionParams& params) {
  dispatch_kernel(q.dtype(), kv.pool->spec().k_dim,
                  [&]<typename T, int kDim>() { launch<T, kDim>(stream, out, q, step, kv, params); });
}

}  // namespace tokenmill::cuda
