#include "kernels/cuda/cuda_kv_pool.h"

#include <cstring>

#include "kernels/core/check.h"

namespace tokenmill::cuda {

KvPageLayout kv_page_layout(const KvSpec& spec) {
  TM_ASSERT(spec.block_size > 0 && spec.block_size % 16 == 0, "block_size {} is not a multiple of 16", spec.block_size);
  TM_ASSERT(spec.num_layers > 0 && spec.num_kv_heads > 0 && spec.k_dim > 0 && spec.v_dim > 0,
            "{} layers, {} kv heads, k_dim {}, v_dim {}", spec.num_layers, spec.num_kv_heads, spec.k_dim, spec.v_dim);
  KvPageLayout layout{};
  layout.layer_elements = spec.num_kv_heads * spec.block_size * (spec.k_dim + spec.v_dim);
  layout.block_elements = spec.num_layers * layout.layer_elements;
  layout.block_size = static_cast<int>(spec.block_size);
  layout.num_kv_heads = static_cast<int>(spec.num_kv_heads);
  layout.k_dim = static_cast<int>(spec.k_dim);
  layout.v_dim = static_cast<int>(spec.v_dim);
  return layout;
}

CudaKvPool::CudaKvPool(const KvSpec& spec, int64_t num_blocks, std::span<std::byte> storage)
    : spec_(spec), num_blocks_(num_blocks), storage_(storage), layout_(kv_page_layout(spec)) {}

namespace {

/// Calls visit(byte offset in the block, byte offset in the canonical layout, bytes) for every head's row of a block.
template <typename Visit>
void for_each_row(const KvSpec& spec, const KvPageLayout& layout, Visit&& visit) {
  const int64_t element = dtype_size(spec.dtype);
  int64_t canonical = 0;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    for (const bool is_key : {true, false}) {
      const int64_t dim = is_key ? spec.k_dim : spec.v_dim;
      for (int64_t token = 0; token < spec.block_size; ++token) {
        for (int head = 0; head < layout.num_kv_heads; ++head) {
          const int64_t offset = is_key ? layout.key_offset(head, token) : layout.value_offset(head, token);
          visit((layer * layout.layer_elements + offset) * element, canonical, dim * element);
          canonical += dim * element;
        }
      }
    }
  }
}

}  // namespace

void CudaKvPool::to_canonical(std::span<const std::byte> block, std::byte* out) const {
  for_each_row(spec_, layout_, [&](int64_t from, int64_t to, int64_t bytes) {
    std::memcpy(out + to, block.data() + from, static_cast<size_t>(bytes));
  });
}

void CudaKvPool::from_canonical(const std::byte* in, std::span<std::byte> block) const {
  for_each_row(spec_, layout_, [&](int64_t to, int64_t from, int64_t bytes) {
    std::memcpy(block.data() + to, in + from, static_cast<size_t>(bytes));
  });
}

const CudaKvPool& cuda_pool(const KvPool& pool) {
  const auto* own = dynamic_cast<const CudaKvPool*>(&pool);
  TM_ASSERT(own != nullptr, "a KV pool of another device");
  return *own;
}

}  // namespace tokenmill::cuda
