// attention, backend "paged_mma": formula in kernels/ops.h; bf16 and f16, k_dim == v_dim of 64, 96, 128 or 256, sm_80
// and later.
// Work:   blocks walk over the step's work list (attention_plan.cu) times the KV heads. Rows are tokens times the query
//         heads of a group, so keys and values are read once for all of them: 64 rows in prefill, 16 in decode. Tiles
//         of 64 positions come through the block table by cp.async, one tile ahead of the products (m16n8k16). A decode
//         row's splits of 512 positions are computed by different blocks, and a second kernel merges them.
// Order:  attention_walk.cuh; splits are merged in ascending order, by the same function in both kernels.
// Bytes:  keys and values once per row tile; q and out once; parts of (head size + 2) floats per decode row and split.
// Rounds: the weights of the second product to the dtype; the sum of weights is of the rounded ones.
// Limits: a NaN or infinity among a sequence's own values reaches earlier rows of the same chunk where they share a
// tile
//         of positions.
// Spills: 20 bytes in heads of 256 on sm_90a, none elsewhere (kernels/README.md). Measured: not yet on a device.
#include <algorithm>

#include "kernels/core/check.h"
#include "kernels/cuda/attention_paged_mma.h"
#include "kernels/cuda/attention_walk.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/device/cuda_check.h"

namespace tokenmill::cuda {
namespace {

constexpr int kMergeThreads = 128;

template <typename T, int kDim>
__global__ void __launch_bounds__(MmaBlock<kDim>::kThreads)
    attention_paged_mma_kernel(AttentionCall<T> call, AttentionWork work, AttentionParts parts,
                               FoldedStates<kDim> folded, bool wide) {
  GPU_DYN_SHARED(shared);
  const int heads = call.layout.num_kv_heads, units = work.counts->items * heads;
  for (int unit = static_cast<int>(blockIdx.x); unit < units; unit += static_cast<int>(gridDim.x)) {
    const AttentionItem item = work.items[unit / heads];
    const int kv_head = unit % heads;
    if (item.num_rows <= kSmallRows) {
      AttentionWalk<T, kDim, 1>(call, item, kv_head, shared, folded.own()).compute(parts, wide);
    } else {
      AttentionWalk<T, kDim, 4>(call, item, kv_head, shared, folded.own()).compute(parts, wide);
    }
  }
}

/// One row: its parts folded in ascending order, as AttentionWalk::run does.
template <typename T, int kDim>
__device__ void merge_row(const AttentionCall<T>& call, const AttentionMerge& merge, const AttentionParts& parts,
                          int kv_head, int row) {
  const int heads = call.layout.num_kv_heads, group = call.group();
  const float factor = score_factor(call.params);
  T* out = call.out + (call.cu_seqlens[merge.sequence] + row / group) * call.out_stride +
           (kv_head * group + row % group) * kDim;
  for (int d = static_cast<int>(threadIdx.x); d < kDim; d += kMergeThreads) {
    float max = kNothingSeen, sum = 0, value = 0;
    for (int i = 0; i < merge.num_parts; ++i) {
      const float* part = parts.part<kDim>(merge.first_part + i, kv_head, heads);
      const FoldWeights weights(max, part[kSmallRows * kDim + row], factor);
      max = weights.top;
      sum = weights.fold(sum, part[kSmallRows * (kDim + 1) + row]);
      value = weights.fold(value, part[row * kDim + d]);
    }
    out[d] = narrow<T>(value * (1.0f / sum));
  }
}

template <typename T, int kDim>
__global__ void merge_attention_kernel(AttentionCall<T> call, AttentionWork work, AttentionParts parts) {
  const int heads = call.layout.num_kv_heads, units = work.counts->merges * heads * kSmallRows;
  for (int unit = static_cast<int>(blockIdx.x); unit < units; unit += static_cast<int>(gridDim.x)) {
    const AttentionMerge merge = work.merges[unit / (heads * kSmallRows)];
    const int row = unit % kSmallRows;
    if (row < merge.num_rows) merge_row<T, kDim>(call, merge, parts, unit / kSmallRows % heads, row);
  }
}

int64_t part_elements(int64_t head_dim) { return kSmallRows * (head_dim + 2); }

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

bool PagedMmaAttention::has_kernel(DType dtype, int64_t k_dim, int64_t v_dim) {
  return (dtype == DType::kBF16 || dtype == DType::kF16) && k_dim == v_dim &&
         (k_dim == 64 || k_dim == 96 || k_dim == 128 || k_dim == 256);
}

int64_t PagedMmaAttention::shared_bytes(int64_t head_dim) {
  int64_t bytes = 0;
  dispatch_kernel(DType::kBF16, head_dim, [&]<typename T, int kDim>() { bytes = MmaBlock<kDim>::kSharedBytes; });
  return bytes;
}

void PagedMmaAttention::prepare(DType dtype, int64_t head_dim) {
  if (parts_.data() == nullptr) parts_ = memory_.allocate(part_bytes_);
  const int64_t bytes = folded_bytes(dtype, head_dim);
  if (folded_.num_bytes() < bytes) folded_ = memory_.allocate(bytes);
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

AttentionShape PagedMmaAttention::shape_of(const KvSpec& spec, int64_t num_heads, int64_t window) const {
  const int64_t bytes = spec.num_kv_heads * part_elements(spec.k_dim) * int64_t{sizeof(float)};
  return {.group = static_cast<int32_t>(num_heads / spec.num_kv_heads),
          .max_parts = static_cast<int32_t>(part_bytes_ / bytes),
          .window = window};
}

int64_t PagedMmaAttention::workspace_bytes(const WorkspaceRequest& request) {
  int64_t bytes = part_bytes_, folded = 0;
  for (const KvSpec& spec : request.kv_groups) {
    if (!has_kernel(spec.dtype, spec.k_dim, spec.v_dim)) continue;
    folded = std::max(folded, folded_bytes(spec.dtype, spec.k_dim));
    const AttentionShape shape = shape_of(spec, request.num_heads, spec.window);
    bytes += AttentionPlans::bytes(shape, request.max_num_tokens, request.max_num_tokens);
  }
  return bytes + folded;
}

void PagedMmaAttention::reserve(const KvSpec& spec, const WorkspaceRequest& request) {
  // No step has more sequences than tokens.
  plans_.reserve(shape_of(spec, request.num_heads, spec.window), request.max_num_tokens, request.max_num_tokens);
}

int PagedMmaAttention::resident_blocks(const void* kernel, int threads, int shared_bytes) {
  if (const auto known = resident_.find(kernel); known != resident_.end()) return known->second;
  if (shared_bytes > 0) {
    TM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  }
  int blocks = 0;
  TM_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, static_cast<size_t>(shared_bytes)));
  TM_ASSERT(blocks > 0, "an attention block of {} threads and {} bytes of shared memory does not fit", threads,
            shared_bytes);
  return resident_[kernel] = blocks * num_multiprocessors_;
}

template <typename T, int kDim>
void PagedMmaAttention::launch(cudaStream_t stream, const TensorView& out, const TensorView& q, const StepTensors& step,
                               KvLayer kv, const AttentionParams& params) {
  using Block = MmaBlock<kDim>;
  const auto kernel = attention_paged_mma_kernel<T, kDim>;
  const auto merge = merge_attention_kernel<T, kDim>;
  const AttentionCall<T> call = make_attention_call<T>(out, q, step, kv, params);
  const AttentionShape shape = shape_of(kv.pool->spec(), call.num_heads, params.window);
  const AttentionWork work = plans_.work(shape, step, stream);
  const AttentionParts parts{static_cast<float*>(parts_.data())};
  const int resident = resident_blocks(reinterpret_cast<const void*>(kernel), Block::kThreads, Block::kSharedBytes);
  const int64_t positions = step.groups[static_cast<size_t>(kv.group)].block_table.cols() * call.layout.block_size;
  const int64_t num_splits = (positions + kKvSplit - 1) / kKvSplit;
  const int64_t apart = num_splits > 1 ? std::min<int64_t>(shape.max_parts, num_splits * call.num_sequences) : 0;
  const int64_t units =
      (call.num_tokens * shape.group / kLargeRows + call.num_sequences + apart) * call.layout.num_kv_heads;
  const auto grid = [&](int64_t most, int limit) {
    return dim3(static_cast<unsigned>(std::clamp<int64_t>(most, 1, limit)));
  };
  TM_CUDA(gpu::launch(kernel,
                      {.grid = grid(units, resident),
                       .block = Block::kThreads,
                       .smem = Block::kSharedBytes,
                       .stream = stream,
                       .name = "attention_paged_mma"},
                      call, work, parts, FoldedStates<kDim>{static_cast<float*>(folded_.data())}, all_aligned({q})));
  if (apart == 0) return;  // no context of such a block table has two splits
  const int64_t rows = int64_t{call.num_sequences} * call.layout.num_kv_heads * kSmallRows;
  TM_CUDA(gpu::launch(merge,
                      {.grid = grid(rows, resident_blocks(reinterpret_cast<const void*>(merge), kMergeThreads, 0)),
                       .block = kMergeThreads,
                       .smem = 0,
                       .stream = stream,
                       .name = "merge_attention"},
                      call, work, parts));
}

void PagedMmaAttention::run(cudaStream_t stream, const TensorView& out, const TensorView& q, const StepTensors& step,
                            KvLayer kv, const AttentionParams& params) {
  TM_ASSERT(params.scale > 0, "attention with a scale of {}; it must be positive", params.scale);
  dispatch_kernel(q.dtype(), kv.pool->spec().k_dim,
                  [&]<typename T, int kDim>() { launch<T, kDim>(stream, out, q, step, kv, params); });
}

}  // namespace tokenmill::cuda
