#pragma once
#include <cstdint>
#include <span>

#include "kernels/core/dtype.h"

namespace tokenmill {

/// What one layer group keeps per token. All layers of a group share one block table.
struct KvSpec {
  enum class Kind : uint8_t {
    kFull,
    kSlidingWindow,
    kMla,  ///< one latent of k_dim values per token, the same on every rank (num_kv_heads 1); V is its first v_dim values
  };
  Kind kind = Kind::kFull;
  int64_t window = 0;  ///< kSlidingWindow: a query sees itself and the window - 1 positions before it
  int64_t num_layers = 0;
  int64_t num_kv_heads = 0;  ///< on this rank
  int64_t k_dim = 0, v_dim = 0;
  DType dtype = DType::kF32;
  int64_t block_size = 16;  ///< tokens per block; a multiple of 16
  /// The first position that a query at this position sees.
  int64_t first_visible(int64_t position) const {
    return kind == Kind::kSlidingWindow && position >= window ? position + 1 - window : 0;
  }
  /// Blocks that cover positions [0, num_tokens).
  int64_t num_blocks_for(int64_t num_tokens) const { return (num_tokens + block_size - 1) / block_size; }
  /// Blocks needed at once to compute positions [0, num_tokens) in chunks of at most chunk tokens: all of them, or what
  /// a window and the chunk cover.
  int64_t num_live_blocks_for(int64_t num_tokens, int64_t chunk) const {
    const int64_t all = num_blocks_for(num_tokens);
    if (kind != Kind::kSlidingWindow) return all;
    // The window before a chunk that starts at a block's edge, and the chunk; one more where it does not start there.
    const int64_t live = num_blocks_for(window - 1) + num_blocks_for(chunk) + (chunk > 1 ? 1 : 0);
    return live < all ? live : all;
  }
  bool operator==(const KvSpec&) const = default;
};

/// The device memory behind the block ids of one group. The page layout is the backend's secret; all layers of one block
/// move with one call. Block ids run from 0 to num_blocks - 1. Made by Ops::make_kv_pool over storage of the caller.
class KvPool {
 public:
  virtual ~KvPool() = default;
  virtual const KvSpec& spec() const = 0;
  virtual int64_t num_blocks() const = 0;
};

/// One layer's keys and values inside a pool.
struct KvLayer {
  KvPool* pool = nullptr;
  int64_t layer = 0;  ///< index inside the group
  int group = 0;      ///< which of StepTensors::groups addresses it
};

struct BlockCopy {
  int32_t source = 0, destination = 0;
  bool operator==(const BlockCopy&) const = default;
};

}  // namespace tokenmill
