#pragma once
#include <cstddef>
#include <span>

#include "kernels/device/cuda.h"
#include "kernels/kv_pool.h"

namespace tokenmill::cuda {

/// How keys and values lie in a block, in elements: [layer]{[kv head][token][k_dim], [kv head][token][v_dim]}. The
/// tokens of a block and head are one dense matrix, so a tile of keys or values is one bulk copy per block. A plain
/// struct: kernels get it by value.
struct KvPageLayout {
  int64_t block_elements;  ///< all layers
  int64_t layer_elements;
  int block_size, num_kv_heads, k_dim, v_dim;

  /// Of a token's key or value, from the start of its block's layer.
  __host__ __device__ int64_t key_offset(int kv_head, int64_t token) const {
    return (static_cast<int64_t>(kv_head) * block_size + token) * k_dim;
  }
  __host__ __device__ int64_t value_offset(int kv_head, int64_t token) const {
    return static_cast<int64_t>(num_kv_heads) * block_size * k_dim +
           (static_cast<int64_t>(kv_head) * block_size + token) * v_dim;
  }
};

KvPageLayout kv_page_layout(const KvSpec& spec);

class CudaKvPool : public KvPool {
 public:
  /// storage: device memory of at least num_blocks blocks, aligned to 16 bytes.
  CudaKvPool(const KvSpec& spec, int64_t num_blocks, std::span<std::byte> storage);
  const KvSpec& spec() const override { return spec_; }
  int64_t num_blocks() const override { return num_blocks_; }
  const KvPageLayout& layout() const { return layout_; }
  int64_t block_bytes() const { return layout_.block_elements * dtype_size(spec_.dtype); }
  /// Device address of a block, all layers.
  std::byte* block(int64_t id) const { return storage_.data() + id * block_bytes(); }
  /// Device address of a layer's part of block 0.
  template <typename T>
  T* layer_data(int64_t layer) const {
    return reinterpret_cast<T*>(storage_.data()) + layer * layout_.layer_elements;
  }
  /// Between a block's bytes in host memory and the canonical layout of Ops::export_blocks.
  void to_canonical(std::span<const std::byte> block, std::byte* out) const;
  void from_canonical(const std::byte* in, std::span<std::byte> block) const;

 private:
  KvSpec spec_;
  int64_t num_blocks_;
  std::span<std::byte> storage_;
  KvPageLayout layout_;
};

/// The pool as this device's. Throws Error(kInternal) for one of another device.
const CudaKvPool& cuda_pool(const KvPool& pool);

}  // namespace tokenmill::cuda
