#pragma once
#include <cstdint>

#include "kernels/cuda/cuda_kv_pool.h"
#include "kernels/device/cuda.h"
#include "kernels/ops.h"

namespace tokenmill::cuda {

/// Positions of one online-softmax step, and of one split: both cut at absolute positions, in every backend, so that a
/// token's bits do not depend on the chunk it arrives in.
constexpr int kKvTile = 64;
constexpr int kKvSplit = 512;

/// One attention call as kernels get it, by value. T: element type of q, the pages and out.
template <typename T>
struct AttentionCall {
  T* out;
  int64_t out_stride;
  const T* q;
  int64_t q_stride;
  const T* pages;  ///< this layer's keys of block 0
  KvPageLayout layout;
  const int32_t* block_table;
  int64_t block_table_stride;
  const int32_t* cu_seqlens;
  const int64_t* positions;
  int num_sequences, num_tokens, num_heads;
  AttentionParams params;

  /// Query heads that share a KV head.
  __host__ __device__ int group() const { return num_heads / layout.num_kv_heads; }
  /// The sequence of a token: the last one that starts at it or before, among those that have tokens; -1 for padding.
  __device__ int sequence_of(int token) const {
    if (token >= cu_seqlens[num_sequences]) return -1;
    int low = 0, high = num_sequences;  // cu_seqlens[low] <= token < cu_seqlens[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (cu_seqlens[middle] <= token ? low : high) = middle;
    }
    return low;
  }
  /// The first element of position p's key (value) of a KV head.
  __device__ const T* key(const int32_t* table, int kv_head, int64_t p) const {
    return pages + table[p / layout.block_size] * layout.block_elements +
           layout.key_offset(kv_head, p % layout.block_size);
  }
  __device__ const T* value(const int32_t* table, int kv_head, int64_t p) const {
    return pages + table[p / layout.block_size] * layout.block_elements +
           layout.value_offset(kv_head, p % layout.block_size);
  }
};

template <typename T>
AttentionCall<T> make_attention_call(const TensorView& out, const TensorView& q, const StepTensors& step, KvLayer kv,
                                     const AttentionParams& params) {
  const CudaKvPool& pool = cuda_pool(*kv.pool);
  const StepTensors::Group& group = step.groups[static_cast<size_t>(kv.group)];
  return {.out = static_cast<T*>(out.data()),
          .out_stride = out.row_stride(),
          .q = static_cast<const T*>(q.data()),
          .q_stride = q.row_stride(),
          .pages = pool.layer_data<T>(kv.layer),
          .layout = pool.layout(),
          .block_table = static_cast<const int32_t*>(group.block_table.data()),
          .block_table_stride = group.block_table.row_stride(),
          .cu_seqlens = static_cast<const int32_t*>(step.cu_seqlens.data()),
          .positions = static_cast<const int64_t*>(step.positions.data()),
          .num_sequences = static_cast<int>(step.seq_lens.cols()),
          .num_tokens = static_cast<int>(q.rows()),
          .num_heads = static_cast<int>(q.cols() / pool.spec().k_dim),
          .params = params};
}

}  // namespace tokenmill::cuda
