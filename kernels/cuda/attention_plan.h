#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/cuda_memory.h"
#include "kernels/device/cuda.h"
#include "kernels/step_tensors.h"

namespace tokenmill::cuda {

/// A sequence's query rows for one KV head are numbered token by token: row = token in the step * group + head in the
/// group. The splits of a sequence of at most kSmallRows rows may be computed apart.
constexpr int kSmallRows = 16;

/// How a backend cuts its work.
struct AttentionTiles {
  int32_t rows;        ///< of a row tile
  int32_t small_rows;  ///< so many take a block no longer than one does
  int32_t split;       ///< positions of a split
  bool operator==(const AttentionTiles&) const = default;
};

/// What one block does for one KV head: a row tile of a sequence against all positions that its rows see, or the rows
/// of one sequence or several that follow one another against one split, which all of them see in the same KV blocks.
struct AttentionItem {
  int32_t sequence;             ///< the first
  int32_t first_row, num_rows;  ///< counted from the first row of that sequence
  int32_t split;                ///< -1: all, the result goes to out; else the states after that split become parts
  int32_t rows_each;            ///< of every sequence
};

/// A sequence whose splits are computed apart. The state of its row r after its split i is part
/// first_part + i * num_rows + r.
struct AttentionMerge {
  int32_t sequence, num_rows;
  int32_t first_part, num_splits;
};

struct AttentionCounts {
  int32_t items, merges;
};

/// Where a sequence's entries begin in the lists.
struct AttentionShare {
  int32_t first_item;  ///< of those against all positions
  int32_t first_part;  ///< -1: its splits are not computed apart
  int32_t first_split, num_splits;
};

struct SplitRange {
  int32_t begin, end;
  __host__ __device__ bool contains(int split) const { return split >= begin && split < end; }
};

/// The work of one step, in device memory; kernels get it by value.
struct AttentionWork {
  AttentionCounts* counts;
  AttentionShare* shares;  ///< [num_sequences + 1]
  SplitRange* common;      ///< [num_sequences]: splits in the same blocks as those of the sequence before
  AttentionItem* items;
  AttentionMerge* merges;
};

/// The parts of the splits that are computed apart (AttentionMerge): states of single rows, for every KV head.
struct AttentionParts {
  float* outs;   ///< [parts, KV heads, head size]
  float2* ends;  ///< [parts, KV heads]: maximum and sum
  const AttentionShare* shares;
  /// Where the state of an item's row stands in both.
  __host__ __device__ __forceinline__ int64_t of(const AttentionItem& item, int row, int kv_head,
                                                 int num_kv_heads) const {
    const AttentionShare share = shares[item.sequence + row / item.rows_each];
    const int part = share.first_part + (item.split - share.first_split) * item.rows_each + row % item.rows_each;
    return static_cast<int64_t>(part) * num_kv_heads + kv_head;
  }
};

/// What a plan depends on besides the step: attention calls that agree share it.
struct AttentionShape {
  AttentionTiles tiles;
  int32_t group;       ///< query heads per KV head
  int32_t kv_group;    ///< whose block table tells which sequences share blocks
  int32_t block_size;  ///< of that group
  int32_t max_parts;   ///< how many parts there is room for
  int32_t mates;       ///< so many sequences share an item at most; 0: as many as leave busy_items items
  int32_t busy_items;  ///< so many keep the device busy
  int64_t window;
  bool operator==(const AttentionShape&) const = default;
};

/// The work lists of a step, made by kernels when the first attention call of each shape asks for them: nothing of the
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
