#include "kernels/cpu/cpu_kv_pool.h"

#include "kernels/core/check.h"

namespace tokenmill::cpu {
namespace {

/// Calls visit(value in the pool, canonical index) for every value of block id.
template <typename T, typename Visit>
void for_each_value(const KvPageLayout& layout, std::byte* data, int32_t id, Visit&& visit) {
  const int64_t tokens = layout.strips_per_block * kStripTokens, heads = layout.num_kv_heads;
  int64_t canonical = 0;
  for (int64_t layer = 0; layer < layout.num_layers; ++layer) {
    for (const bool is_key : {true, false}) {
      const int64_t dim = is_key ? layout.k_dim : layout.v_dim;
      for (int64_t token = 0; token < tokens; ++token) {
        for (int64_t head = 0; head < heads; ++head) {
          const int64_t strip = layout.strip_offset(id, layer, head, token / kStripTokens);
          auto* values = reinterpret_cast<T*>(data + strip + (is_key ? 0 : layout.key_bytes));
          const int64_t t = token % kStripTokens;
          for (int64_t d = 0; d < dim; ++d) {
            visit(values[is_key ? key_index<T>(t, d) : value_index<T>(t, d)], canonical++);
          }
        }
      }
    }
  }
}

template <typename T>
void export_values(const KvPageLayout& layout, std::byte* data, int32_t id, T* out) {
  for_each_value<T>(layout, data, id, [&](T& value, int64_t i) { out[i] = value; });
}

template <typename T>
void import_values(const KvPageLayout& layout, std::byte* data, int32_t id, const T* in) {
  for_each_value<T>(layout, data, id, [&](T& value, int64_t i) { value = in[i]; });
}

}  // namespace

KvPageLayout::KvPageLayout(const KvSpec& spec)
    : dtype(spec.dtype),
      num_layers(spec.num_layers),
      num_kv_heads(spec.num_kv_heads),
      strips_per_block(spec.block_size / kStripTokens),
      k_dim(spec.k_dim),
      v_dim(spec.v_dim) {
  TM_ASSERT(dtype == DType::kF32 || dtype == DType::kBF16, "KV pages of {}", to_string(dtype));
  TM_ASSERT(spec.block_size > 0 && spec.block_size % kStripTokens == 0, "block_size {} is not a multiple of {}",
            spec.block_size, kStripTokens);
  TM_ASSERT(num_layers > 0 && num_kv_heads > 0 && k_dim > 0 && v_dim > 0, "{} layers, {} kv heads, k_dim {}, v_dim {}",
            num_layers, num_kv_heads, k_dim, v_dim);
  key_bytes = panel_elements(k_dim, dtype) * dtype_size(dtype);
  v_panels = tokenmill::cpu::num_panels(v_dim);
  v_panel_bytes = panel_elements(kStripTokens, dtype) * dtype_size(dtype);
  strip_bytes = key_bytes + v_panels * v_panel_bytes;
  block_bytes = num_layers * num_kv_heads * strips_per_block * strip_bytes;
}

CpuKvPool::CpuKvPool(const KvSpec& spec, int64_t num_blocks, std::span<std::byte> storage)
    : spec_(spec), num_blocks_(num_blocks), storage_(storage), layout_(spec) {}

std::span<std::byte> CpuKvPool::block(int32_t id) const {
  TM_ASSERT(id >= 0 && id < num_blocks_, "KV block {} of {}", id, num_blocks_);
  return storage_.subspan(static_cast<size_t>(id * layout_.block_bytes), static_cast<size_t>(layout_.block_bytes));
}

void CpuKvPool::export_block(int32_t id, std::byte* out) const {
  block(id);
  if (layout_.dtype == DType::kF32) {
    export_values(layout_, storage_.data(), id, reinterpret_cast<float*>(out));
  } else {
    export_values(layout_, storage_.data(), id, reinterpret_cast<bf16*>(out));
  }
}

void CpuKvPool::import_block(int32_t id, const std::byte* in) {
  block(id);
  if (layout_.dtype == DType::kF32) {
    import_values(layout_, storage_.data(), id, reinterpret_cast<const float*>(in));
  } else {
    import_values(layout_, storage_.data(), id, reinterpret_cast<const bf16*>(in));
  }
}

}  // namespace tokenmill::cpu
