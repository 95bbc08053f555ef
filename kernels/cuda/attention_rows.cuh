#pragma once
// The rows of one item of attention's work list: which tokens and heads they are, and what they see.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/element.cuh"

namespace tokenmill::cuda {

/// T: element type of queries and output; kDim: head size.
template <typename T, int kDim>
struct AttentionRows {
  const AttentionCall<T>& call;
  const AttentionItem& item;
  int kv_head;
  int begin_token;  // of the sequence, in the step
  int low, high;    // positions that some row of the item sees
  const int32_t* table;

  __device__ AttentionRows(const AttentionCall<T>& attention, const AttentionItem& work, int head)
      : call(attention), item(work), kv_head(head) {
    begin_token = call.cu_seqlens[item.sequence];
    table = call.block_table + item.sequence * call.block_table_stride;
    low = first_visible(position_of(0));
    high = position_of(item.num_rows - 1) + 1;
  }

  __device__ __forceinline__ int token_of(int row) const { return begin_token + (item.first_row + row) / call.group(); }
  __device__ __forceinline__ int head_of(int row) const {
    return kv_head * call.group() + (item.first_row + row) % call.group();
  }
  __device__ __forceinline__ int position_of(int row) const { return static_cast<int>(call.positions[token_of(row)]); }
  /// The first position that a query at position p sees.
  __device__ __forceinline__ int first_visible(int p) const {
    return call.params.window > 0 && p >= call.params.window ? p + 1 - static_cast<int>(call.params.window) : 0;
  }

  /// Elements [8 * chunk, + 8) of a row's query, zeros behind the last row. wide: they can be read 16 bytes at once.
  __device__ __forceinline__ uint4 query_chunk(int row, int chunk, bool wide) const {
    uint4 bits = {0, 0, 0, 0};
    if (row >= item.num_rows) return bits;
    const T* from = call.q + token_of(row) * call.q_stride + head_of(row) * kDim + chunk * 8;
    if (wide) return *reinterpret_cast<const uint4*>(from);
    T elements[8];
    GPU_UNROLL for (int e = 0; e < 8; ++e) elements[e] = from[e];
    memcpy(&bits, static_cast<const void*>(elements), sizeof(bits));
    return bits;
  }
  /// Where a row's output stands.
  __device__ __forceinline__ T* out_of(int row) const {
    return call.out + token_of(row) * call.out_stride + head_of(row) * kDim;
  }
  /// Elements from block 0's first key of this layer to those of 16 positions from p on, which lie in one block (block
  /// sizes are multiples of 16).
  __device__ __forceinline__ int64_t keys_at(int position) const {
    const auto p = static_cast<unsigned>(position), size = static_cast<unsigned>(call.layout.block_size);
    return table[p / size] * call.layout.block_elements +
           call.layout.key_offset(kv_head, static_cast<int64_t>(p % size));
  }
  /// Elements from a key to its value.
  __device__ __forceinline__ int64_t key_to_value() const {
    return static_cast<int64_t>(call.layout.num_kv_heads) * call.layout.block_size * kDim;
  }
};

/// What two rows of a thread see: positions [low, high), empty for a row behind the item's last; and of a range of rows
/// [first, last], what all of them see.
struct VisibleRange {
  int full_low, full_high;
  int low[2], high[2];
  template <typename T, int kDim>
  __device__ VisibleRange(const AttentionRows<T, kDim>& rows, int first, int last, const int (&own)[2]) {
    full_low = rows.first_visible(rows.position_of(last));
    full_high = rows.position_of(first) + 1;
    GPU_UNROLL for (int r = 0; r < 2; ++r) {
      const bool used = own[r] < rows.item.num_rows;
      const int p = used ? rows.position_of(own[r]) : -1;
      low[r] = used ? rows.first_visible(p) : 0;
      high[r] = p + 1;
    }
  }
  __device__ __forceinline__ bool sees(int row, int position) const {
    return position >= low[row] && position < high[row];
  }
  /// All rows see all of [begin, end).
  __device__ __forceinline__ bool all_see(int begin, int end) const { return begin >= full_low && end <= full_high; }
};

}  // namespace tokenmill::cuda
