#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/cuda_memory.h"
#include "kernels/device/cuda.h"
#include "kernels/step_tensors.h"

namespace tokenmill::cuda {

/// A sequence's query rows for one KV head are numbered token by token: row = token in the step * group + head in the
/// group. The splits of a tile of at most kSmallRows rows may be computed apart.
constexpr int kSmallRows = 16;

/// How a backend cuts its work.
struct AttentionTiles {
  int32_t rows;   ///< of a row tile
  int32_t split;  ///< positions of a split
  bool operator==(const AttentionTiles&) const = default;
};

/// What one block does for one KV head: a row tile against all positions that its rows see, or against one split of
/// them.
struct AttentionItem {
  int32_t sequence;
  int32_t first_row, num_rows;
  int32_t split;  ///< -1: all, the result goes to out; else the state after that split goes to part `part`
  int32_t part;
};

/// A row tile whose splits are computed apart: parts [first_part, first_part + num_parts) in ascending order.
struct AttentionMerge {
  int32_t sequence, num_rows;
  int32_t first_part, num_parts;
};

struct AttentionCounts {
  int32_t items, merges;
};

/// Where a sequence's entries begin in the lists.
struct AttentionShare {
  int32_t first_item;
  int32_t first_part;  ///< -1: its splits are not computed apart
  int32_t first_split;
};

/// The work of one step, in device memory; kernels get it by value.
struct AttentionWork {
  AttentionCounts* counts;
  AttentionShare* shares;  ///< [num_sequences + 1]
  AttentionItem* items;
  AttentionMerge* merges;
};

/// What a plan depends on besides the step: attention calls that agree share it.
struct AttentionShape {
  AttentionTiles tiles;
  int32_t group;      ///< query heads per KV head
  int32_t max_parts;  ///< how many parts there is room for
  int64_t window;
  bool operator==(const AttentionShape&) const = default;
};

/// The work lists of a step, made by a kernel when the first attention call of each shape asks for them: nothing of the
/// step is read by the host, so that a step can be recorded. Memory that has not been reserved grows with the
/// steps' sizes; what a recording may still name is kept.
class AttentionPlans {
 public:
  explicit AttentionPlans(CudaMemory& memory) : memory_(memory) {}
  /// A new step: earlier lists are void.
  void start_step() { ++step_; }
  AttentionWork work(const AttentionShape& shape, const StepTensors& step, cudaStream_t stream);
  /// Takes the memory for steps of at most these sizes.
  void reserve(const AttentionShape& shape, int64_t num_tokens, int64_t num_sequences);
  /// The most items that a step of these sizes can have.
  static int64_t max_items(const AttentionShape& shape, int64_t num_tokens, int64_t num_sequences);
  static int64_t bytes(const AttentionShape& shape, int64_t num_tokens, int64_t num_sequences);

 private:
  struct Plan {
    AttentionShape shape;
    Buffer memory;
    int64_t step = -1;  // of which the lists are
    int64_t num_tokens = 0, num_sequences = 0;
  };
  Plan& plan_of(const AttentionShape& shape);

  CudaMemory& memory_;
  int64_t step_ = 0;
  std::vector<Plan> plans_;
  std::vector<Buffer> outgrown_;
};

}  // namespace tokenmill::cuda
