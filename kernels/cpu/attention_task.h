#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/core/tensor.h"
#include "kernels/cpu/cpu_kv_pool.h"
#include "kernels/cpu/isa.h"
#include "kernels/ops.h"

namespace tokenmill::cpu {

constexpr int64_t kKvTile = 64;    ///< positions per softmax step, cut at absolute multiples
constexpr int64_t kKvSplit = 512;  ///< positions per split, cut at absolute multiples; splits merge in ascending order
constexpr int64_t kRowBlock = 48;  ///< query rows (tokens x heads of a group) that share one walk over the pages

/// One KV head, some tokens of one sequence, a range of splits.
struct AttentionTask {
  TensorView q, out;  ///< of the whole step
  int64_t token_begin = 0, num_tokens = 0;
  int64_t kv_head = 0, group = 1;      ///< query heads [kv_head * group, (kv_head + 1) * group)
  const int64_t* positions = nullptr;  ///< of the whole step
  const int32_t* block_table = nullptr;
  const std::byte* pages = nullptr;
  const KvPageLayout* layout = nullptr;
  int64_t layer = 0;
  AttentionParams params;
  int64_t split_begin = 0, split_end = 0;
  float* scratch = nullptr;  ///< attention_scratch_floats() of the calling thread
  /// Not null: the merged state goes there instead of out, attention_state_floats() per row, rows = token * group +
  /// head.
  float* state = nullptr;
};

/// Per row: maximum, sum, then the unnormalized output.
constexpr int64_t attention_state_floats(const KvPageLayout& layout) { return 2 + layout.v_panels * kPanelWidth; }
constexpr int64_t attention_scratch_floats(const KvPageLayout& layout) {
  return kRowBlock * ((layout.k_dim + 15) / 16 * 16 + kKvTile + 2 * (attention_state_floats(layout) + 14));
}

struct AttentionKernels {
  void (*attend)(const AttentionTask& task);
  /// state (+)= other, both [rows][attention_state_floats]: the same step that attend uses between splits.
  void (*merge)(float* state, const float* other, int64_t rows, int64_t state_floats);
  /// out row = state / sum for task's tokens.
  void (*finish)(const AttentionTask& task, const float* state);
};

const AttentionKernels& attention_kernels(Isa isa);

}  // namespace tokenmill::cpu
