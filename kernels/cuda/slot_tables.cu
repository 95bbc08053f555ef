// count_tokens, set_bias: a slot's row of the tables per vocabulary id, from scratch; semantics in kernels/ops.h.
// Work:   a fill of the row, then one thread per id. The ids wait in pinned memory that the device reads itself, so the
//         host goes on at once and nothing is allocated.
// Bytes:  the row once, and the ids over the bus. Only when a sequence enters a slot.
#include <algorithm>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.h"

namespace tokenmill::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void count_tokens_kernel(int32_t* counts, const int32_t* ids, int64_t num_ids, int64_t num_in_prompt) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= num_ids) return;
  if (i < num_in_prompt) {
    atomicOr(counts + ids[i], kInPrompt);
  } else {
    atomicAdd(counts + ids[i], 1);
  }
}

__global__ void fill_kernel(float* row, int64_t count, float value) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) row[i] = value;
}

__global__ void scatter_kernel(float* row, const int32_t* ids, const float* values, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) row[ids[i]] = values[i];
}

int64_t num_blocks(int64_t count) { return (count + kThreads - 1) / kThreads; }

}  // namespace

void CudaOps::do_count_tokens(const SamplingTables& tables, int32_t slot, std::span<const int32_t> token_ids,
                              int64_t num_prompt_tokens) {
  int32_t* counts = static_cast<int32_t*>(tables.counts.data()) + slot * tables.counts.row_stride();
  TM_CUDA(cudaMemsetAsync(counts, 0, static_cast<size_t>(tables.counts.cols()) * sizeof(int32_t), stream_.handle()));
  for (int64_t begin = 0; begin < std::ssize(token_ids); begin += SlotArguments::kMaxIds) {
    const int64_t count = std::min(std::ssize(token_ids) - begin, SlotArguments::kMaxIds);
    const auto staged = slot_arguments_.stage(token_ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)));
    TM_CUDA(gpu::launch(count_tokens_kernel, row_launch(num_blocks(count), kThreads, "count_tokens"), counts,
                        staged.ids, count, std::clamp<int64_t>(num_prompt_tokens - begin, 0, count)));
    slot_arguments_.sent(stream_);
  }
}

void CudaOps::do_set_bias(const SamplingTables& tables, int32_t slot, float fill, std::span<const int32_t> ids,
                          std::span<const float> values) {
  float* row = static_cast<float*>(tables.bias.data()) + slot * tables.bias.row_stride();
  const int64_t width = tables.bias.cols();
  TM_CUDA(gpu::launch(fill_kernel, row_launch(num_blocks(width), kThreads, "set_bias"), row, width, fill));
  for (int64_t begin = 0; begin < std::ssize(ids); begin += SlotArguments::kMaxIds) {
    const auto count = static_cast<size_t>(std::min(std::ssize(ids) - begin, SlotArguments::kMaxIds));
    const auto first = static_cast<size_t>(begin);
    const auto staged = slot_arguments_.stage(ids.subspan(first, count), values.subspan(first, count));
    TM_CUDA(gpu::launch(scatter_kernel, row_launch(num_blocks(static_cast<int64_t>(count)), kThreads, "set_bias"), row,
                        staged.ids, staged.values, static_cast<int64_t>(count)));
    slot_arguments_.sent(stream_);
  }
}

}  // namespace tokenmill::cuda
