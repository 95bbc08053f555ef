// attention, backend "paged_wgmma": formula in kernels/ops.h; bf16 and f16, k_dim == v_dim of 64 or 128, sm_90a.
// Work:   one block per multiprocessor walks over the step's work list (attention_plan.cu) times the KV heads. Rows are
//         tokens times the query heads of a group: 128 in prefill, at most 16 in decode, up to 128 there over a split
//         that lies in the same KV blocks for several sequences. Tiles of 128 positions come through the block table by
//         tensor copies (one map of the whole pool) into a ring of two stages. A decode row's splits of 1024 positions
//         are computed by different blocks and merged by a second kernel (attention_paged.cu).
// Order:  attention_wgmma_walk.cuh; splits are merged in ascending order, by the same function in both kernels.
// Bytes:  keys and values once per row tile; q and out once; parts of (head size + 2) floats per decode row and split,
//         and as much per row and 1024 positions of prefill (written and read once).
// Rounds: the weights of the second product to the dtype; the sum of weights is of the rounded ones.
// Limits: a NaN or infinity among a sequence's own values reaches earlier rows of the same chunk where they share a
// tile
//         of positions.
// Spills: none (kernels/README.md). Measured: not yet on a device.
#include "kernels/core/check.h"
#include "kernels/cuda/attention_paged_wgmma.h"
#include "kernels/cuda/attention_wgmma_walk.cuh"
#include "kernels/cuda/tensor_map.h"
#include "kernels/device/cuda_check.h"

namespace tokenmill::cuda {
namespace {

template <typename T, int kDim>
__global__ void __launch_bounds__(WgmmaBlock<kDim>::kThreads)
    attention_paged_wgmma_kernel(AttentionCall<T> call, AttentionWork work, AttentionParts parts, float* folded,
                                 const __grid_constant__ CUtensorMap pages, int64_t first_row, bool wide) {
#if GPU_HAS_SM90A
  using Block = WgmmaBlock<kDim>;
  GPU_DYN_SHARED(shared);
  TileRing<kDim> ring{reinterpret_cast<uint64_t*>(shared + Block::kBarriers)};
  if (threadIdx.x == 0) {
    ring.init();
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  const int heads = call.layout.num_kv_heads, units = work.counts->items * heads;
  if (threadIdx.x < 128) {
    ptx::setmaxnreg_dec<Block::kProducerRegisters>();
    if (threadIdx.x >= 32) return;
    if (threadIdx.x == 0) ptx::prefetch_tensor_map(&pages);
    for (int unit = static_cast<int>(blockIdx.x); unit < units; unit += static_cast<int>(gridDim.x)) {
      const AttentionItem item = work.items[unit / heads];
      const AttentionRows<T, kDim> rows(call, item, unit % heads);
      TileProducer<T, kDim>{rows, &pages, first_row, shared}.produce(ring);
    }
  } else {
    ptx::setmaxnreg_inc<Block::kConsumerRegisters>();
    constexpr int kConsumerThreads = 128 * Block::kConsumers;
    float* own =
        folded + static_cast<int64_t>(blockIdx.x) * (Block::kFoldedFloats * kConsumerThreads) + threadIdx.x - 128;
    WgmmaWalk<T, kDim>::open_turns();
    for (int unit = static_cast<int>(blockIdx.x); unit < units; unit += static_cast<int>(gridDim.x)) {
      const AttentionItem item = work.items[unit / heads];
      const AttentionRows<T, kDim> rows(call, item, unit % heads);
      WgmmaWalk<T, kDim>(rows, shared, own).consume(ring, parts, wide);
    }
    WgmmaWalk<T, kDim>::close_turns();
  }
#else
  __trap();
#endif
}

/// Calls function.template operator()<T, kDim>() for what has_kernel.
template <typename Function>
void dispatch_kernel(DType dtype, int64_t head_dim, Function&& function) {
  const auto with_dim = [&]<typename T>() {
    head_dim == 64 ? function.template operator()<T, 64>() : function.template operator()<T, 128>();
  };
  dtype == DType::kBF16 ? with_dim.template operator()<__nv_bfloat16>() : with_dim.template operator()<__half>();
}

/// Every key and value of a pool is a row.
CUtensorMap map_of(const CudaKvPool& pool) {
  const KvSpec& spec = pool.spec();
  const int64_t rows = pool.num_blocks() * (pool.layout().block_elements / spec.k_dim);
  TM_ASSERT(rows <= INT32_MAX, "a KV pool of {} keys and values", rows);
  CUtensorMap map;
  TM_CUDA(gpu::make_tensor_map(
      &map, {.type = spec.dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
             .base = pool.block(0),
             .rows = static_cast<uint64_t>(rows),
             .columns = static_cast<uint64_t>(spec.k_dim),
             .row_bytes = static_cast<uint64_t>(spec.k_dim) * 2,
             .box_rows = 16,
             .box_columns = 64}));
  return map;
}

}  // namespace

PagedWgmmaAttention::PagedWgmmaAttention(CudaMemory& memory, int num_multiprocessors, AttentionLimits limits)
    : PagedAttention(memory, num_multiprocessors, limits,
                     {.rows = WgmmaBlock<64>::kRows, .small_rows = 64, .split = WgmmaBlock<64>::kSplit}) {}

bool PagedWgmmaAttention::has_kernel(DType dtype, int64_t k_dim, int64_t v_dim) {
  return (dtype == DType::kBF16 || dtype == DType::kF16) && k_dim == v_dim && (k_dim == 64 || k_dim == 128);
}

int64_t PagedWgmmaAttention::shared_bytes(int64_t head_dim) {
  return head_dim == 64 ? WgmmaBlock<64>::kSharedBytes : WgmmaBlock<128>::kSharedBytes;
}

int64_t PagedWgmmaAttention::folded_bytes(DType dtype, int64_t head_dim) {
  int64_t bytes = 0;
  dispatch_kernel(dtype, head_dim, [&]<typename T, int kDim>() {
    using Block = WgmmaBlock<kDim>;
    const auto* kernel = reinterpret_cast<const void*>(attention_paged_wgmma_kernel<T, kDim>);
    bytes = int64_t{resident_blocks(kernel, Block::kThreads, Block::kSharedBytes)} * Block::kFoldedFloats * 128 *
            Block::kConsumers * static_cast<int64_t>(sizeof(float));
  });
  return bytes;
}

template <typename T, int kDim>
void PagedWgmmaAttention::launch(cudaStream_t stream, const TensorView& out, const TensorView& q,
                                 const StepTensors& step, KvLayer kv, const AttentionParams& params) {
  using Block = WgmmaBlock<kDim>;
  const CudaKvPool& pool = cuda_pool(*kv.pool);
  const AttentionCall<T> call = make_attention_call<T>(out, q, step, kv, params);
  const Launches launches = start(stream, step, kv, call.num_heads, params);
  walk(stream, attention_paged_wgmma_kernel<T, kDim>, {"attention_paged_wgmma", Block::kThreads, Block::kSharedBytes},
       launches, call, launches.work, launches.parts, folded(), map_of(pool),
       kv.layer * pool.layout().layer_elements / kDim, all_aligned({q}));
  merge<T, kDim>(stream, call, launches);
}

void PagedWgmmaAttention::run(cudaStream_t stream, const TensorView& out, const TensorView& q, const StepTensors& step,
                              KvLayer kv, const AttentionParams& params) {
  dispatch_kernel(q.dtype(), kv.pool->spec().k_dim,
                  [&]<typename T, int kDim>() { launch<T, kDim>(stream, out, q, step, kv, params); });
}

}  // namespace tokenmill::cuda
