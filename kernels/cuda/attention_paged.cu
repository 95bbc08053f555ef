// What the attention backends over paged keys and values share, and the merge of splits that were computed apart.
// Work:   one block per row of a decoding sequence and KV head; threads over the head's dimensions.
// Order:  a row's parts are folded in ascending order, by the function that the walks fold with (attention_state.cuh).
// Bytes:  parts once, out once. Measured: not yet on a device.
#include <algorithm>

#include "kernels/core/check.h"
#include "kernels/cuda/attention_paged.h"
#include "kernels/cuda/attention_state.cuh"
#include "kernels/cuda/element.cuh"

namespace tokenmill::cuda {
namespace {

constexpr int kMergeThreads = 128;

template <typename T, int kDim>
__device__ void merge_row(const AttentionCall<T>& call, const AttentionMerge& merge, const AttentionParts& parts,
                          int kv_head, int row) {
  const int heads = call.layout.num_kv_heads, group = call.group();
  const float factor = score_factor(call.params);
  T* out = call.out + (call.cu_seqlens[merge.sequence] + row / group) * call.out_stride +
           (kv_head * group + row % group) * kDim;
  for (int d = static_cast<int>(threadIdx.x); d < kDim; d += kMergeThreads) {
    float max = kNothingSeen, sum = 0, value = 0;
    for (int i = 0; i < merge.num_splits; ++i) {
      const int64_t part = static_cast<int64_t>(merge.first_part + i * merge.num_rows + row) * heads + kv_head;
      const float2 end = parts.ends[part];
      const FoldWeights weights(max, end.x, factor);
      max = weights.top;
      sum = weights.fold(sum, end.y);
      value = weights.fold(value, parts.outs[part * kDim + d]);
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

}  // namespace

void PagedAttention::prepare(DType dtype, int64_t head_dim) {
  if (parts_.data() == nullptr) parts_ = memory_.allocate(limits_.part_bytes);
  const int64_t bytes = folded_bytes(dtype, head_dim);
  if (folded_.num_bytes() < bytes) folded_ = memory_.allocate(bytes);
}

AttentionShape PagedAttention::shape_of(const KvSpec& spec, int kv_group, int64_t num_heads, int64_t window) const {
  const int64_t bytes = spec.num_kv_heads * (spec.k_dim + 2) * int64_t{sizeof(float)};  // of a row's state
  return {.tiles = tiles_,
          .group = static_cast<int32_t>(num_heads / spec.num_kv_heads),
          .kv_group = kv_group,
          .block_size = static_cast<int32_t>(spec.block_size),
          .max_parts = static_cast<int32_t>(limits_.part_bytes / bytes),
          .mates = limits_.mates,
          .busy_items = static_cast<int32_t>((num_multiprocessors_ + spec.num_kv_heads - 1) / spec.num_kv_heads),
          .window = window};
}

int64_t PagedAttention::workspace_bytes(const WorkspaceRequest& request, std::span<const int> kv_groups) {
  int64_t lists = 0, folded = 0;
  for (const int group : kv_groups) {
    const KvSpec& spec = request.kv_groups[static_cast<size_t>(group)];
    folded = std::max(folded, folded_bytes(spec.dtype, spec.k_dim));
    const AttentionShape shape = shape_of(spec, group, request.num_heads, spec.window);
    lists += AttentionPlans::bytes(shape, request.max_num_tokens, request.max_num_tokens);
  }
  return kv_groups.empty() ? 0 : limits_.part_bytes + lists + folded;
}

void PagedAttention::reserve(int kv_group, const WorkspaceRequest& request) {
  const KvSpec& spec = request.kv_groups[static_cast<size_t>(kv_group)];
  // No step has more sequences than tokens.
  plans_.reserve(shape_of(spec, kv_group, request.num_heads, spec.window), request.max_num_tokens,
                 request.max_num_tokens);
}

int PagedAttention::resident_blocks(const void* kernel, int threads, int shared_bytes) {
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

PagedAttention::Launches PagedAttention::start(cudaStream_t stream, const StepTensors& step, KvLayer kv,
                                               int64_t num_heads, const AttentionParams& params) {
  TM_ASSERT(params.scale > 0, "attention with a scale of {}; it must be positive", params.scale);
  const KvSpec& spec = kv.pool->spec();
  const AttentionShape shape = shape_of(spec, kv.group, num_heads, params.window);
  const int64_t num_tokens = step.positions.cols(), num_sequences = step.seq_lens.cols();
  const int64_t positions = step.groups[static_cast<size_t>(kv.group)].block_table.cols() * spec.block_size;
  const int64_t num_splits = (positions + tiles_.split - 1) / tiles_.split;
  const int64_t apart =
      num_splits > 1 ? std::min<int64_t>(shape.max_parts / shape.group, num_splits * num_sequences) : 0;
  const AttentionWork work = plans_.work(shape, step, stream);
  auto* outs = static_cast<float*>(parts_.data());
  return {.work = work,
          .parts = {.outs = outs,
                    .ends = reinterpret_cast<float2*>(outs + shape.max_parts * spec.num_kv_heads * spec.k_dim),
                    .shares = work.shares},
          .units = (num_tokens * shape.group / tiles_.rows + num_sequences + apart) * spec.num_kv_heads,
          .merges = apart > 0};
}

template <typename T, int kDim>
void PagedAttention::merge(cudaStream_t stream, const AttentionCall<T>& call, const Launches& launches) {
  if (!launches.merges) return;
  const auto kernel = merge_attention_kernel<T, kDim>;
  const int64_t rows = int64_t{call.num_sequences} * call.layout.num_kv_heads * kSmallRows;
  const int resident = resident_blocks(reinterpret_cast<const void*>(kernel), kMergeThreads, 0);
  TM_CUDA(gpu::launch(kernel,
                      {.grid = dim3(static_cast<unsigned>(std::min<int64_t>(rows, resident))),
                       .block = kMergeThreads,
                       .smem = 0,
                       .stream = stream,
                       .name = "merge_attention"},
                      call, launches.work, launches.parts));
}

#define TM_MERGE(T, kDim) \
  template void PagedAttention::merge<T, kDim>(cudaStream_t, const AttentionCall<T>&, const Launches&);
TM_MERGE(__nv_bfloat16, 64)
TM_MERGE(__nv_bfloat16, 96)
TM_MERGE(__nv_bfloat16, 128)
TM_MERGE(__nv_bfloat16, 256)
TM_MERGE(__half, 64)
TM_MERGE(__half, 96)
TM_MERGE(__half, 128)
TM_MERGE(__half, 256)
#undef TM_MERGE

}  // namespace tokenmill::cuda
