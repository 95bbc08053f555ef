#pragma once
#include <cstddef>
#include <span>

#include "kernels/cpu/panel.h"
#include "kernels/kv_pool.h"

namespace tokenmill::cpu {

/// Tokens of one strip: the unit in which pages are laid out and walked, whatever the block size.
constexpr int64_t kStripTokens = 16;

/// How keys and values lie in a block: [layer][kv head][strip of 16 tokens]{keys, values}.
/// Keys of a strip are one panel of k_dim rows and 16 token columns; values are ceil(v_dim / 16) panels of 16 token
/// rows and 16 dimensions each (panel.h). So both products of attention read panels and nothing is repacked per step.
struct KvPageLayout {
  KvPageLayout() = default;
  explicit KvPageLayout(const KvSpec& spec);
  /// Bytes from the start of the pool.
  int64_t strip_offset(int64_t block, int64_t layer, int64_t head, int64_t strip) const {
    return block * block_bytes + ((layer * num_kv_heads + head) * strips_per_block + strip) * strip_bytes;
  }
  DType dtype = DType::kF32;
  int64_t num_layers = 0, num_kv_heads = 0, strips_per_block = 0, k_dim = 0, v_dim = 0;
  int64_t key_bytes = 0;  ///< keys of one strip; its values follow
  int64_t v_panels = 0;
  int64_t v_panel_bytes = 0;
  int64_t strip_bytes = 0, block_bytes = 0;
};

class CpuKvPool : public KvPool {
 public:
  CpuKvPool(const KvSpec& spec, int64_t num_blocks, std::span<std::byte> storage);
  const KvSpec& spec() const override { return spec_; }
  int64_t num_blocks() const override { return num_blocks_; }
  const KvPageLayout& layout() const { return layout_; }
  std::byte* data() const { return storage_.data(); }
  /// The bytes of one block, all layers. Throws Error(kInternal) for an id outside the pool.
  std::span<std::byte> block(int32_t id) const;
  /// Between a block and the canonical layout of Ops::export_blocks.
  void export_block(int32_t id, std::byte* out) const;
  void import_block(int32_t id, const std::byte* in);

 private:
  KvSpec spec_;
  int64_t num_blocks_;
  std::span<std::byte> storage_;
  KvPageLayout layout_;
};

/// Element (dimension) of token t's key or value inside a strip, in elements from the strip's keys or values.
template <typename T>
constexpr int64_t key_index(int64_t t, int64_t dimension) {
  return panel_index<T>(dimension, t);
}
template <typename T>
constexpr int64_t value_index(int64_t t, int64_t dimension) {
  return dimension / kPanelWidth * (kStripTokens * kPanelWidth) + panel_index<T>(t, dimension % kPanelWidth);
}

}  // namespace tokenmill::cpu
