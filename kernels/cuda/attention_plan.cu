// Work lists of the attention backends with matrix instructions: which row tiles and splits a step has, and which
// sequences share KV blocks over a whole split, so that one item reads these for the rows of all of them (cascade
// attention).
// Work:   one block per sequence compares its block table with that of the sequence before, warps over splits, up to
//         the first that differs. Then one block: threads over sequences, with running sums of what they need; threads
//         over the items that see all positions; warps over the splits that are computed apart, 32 sequences at a time.
// Order:  items that see all positions by sequence, then splits. Splits are computed apart where a sequence has but few
//         rows (decode), in order of sequences as far as there is room for parts. A row's bits do not depend on any of
//         it.
// Bytes:  5 words per item; where tables are equal they are read twice, elsewhere little of them. Measured: not yet on a
//         device.
#include <algorithm>
#include <cstddef>

#include "kernels/core/check.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/device/cuda_check.h"

namespace tokenmill::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

struct PlanCall {
  AttentionWork work;
  AttentionShape shape;
  const int32_t* cu_seqlens;
  const int64_t* positions;
  const int32_t* block_table;
  int64_t block_table_stride;
  int num_sequences;
  bool compares;  ///< work.common is made

  __device__ int rows_of(int sequence) const {
    return (cu_seqlens[sequence + 1] - cu_seqlens[sequence]) * shape.group;
  }
};

/// Sum of the values of all threads before this one; total: of all. Starts with a barrier.
__device__ int sum_before(int value, int& total) {
  using Sums = int[kWarps];
  GPU_SHARED(Sums, sums);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int sum = value;
  GPU_UNROLL for (int distance = 1; distance < 32; distance *= 2) {
    const int before = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += before;
  }
  __syncthreads();
  if (lane == 31) sums[warp] = sum;
  __syncthreads();
  int of_warps = 0;
  total = 0;
  GPU_UNROLL for (int w = 0; w < kWarps; ++w) {
    if (w == warp) of_warps = total;
    total += sums[w];
  }
  return of_warps + sum - value;
}

/// What one sequence asks for.
struct Demand {
  int rows = 0, first_split = 0, splits = 0;  // splits: 0 unless they may be computed apart
  SplitRange whole{0, 0};                     // of these, those that all rows see from end to end
};

__device__ Demand demand_of(const PlanCall& call, int sequence) {
  Demand demand;
  if (sequence >= call.num_sequences) return demand;
  const int begin = call.cu_seqlens[sequence], end = call.cu_seqlens[sequence + 1];
  if (begin >= end) return demand;
  demand.rows = call.rows_of(sequence);
  if (demand.rows > kSmallRows) return demand;
  const int64_t window = call.shape.window, split = call.shape.tiles.split;
  const auto first_visible = [&](int64_t p) { return window > 0 && p >= window ? p + 1 - window : 0; };
  const int64_t first = call.positions[begin], last = call.positions[end - 1];
  demand.first_split = static_cast<int>(first_visible(first) / split);
  const int splits = static_cast<int>(last / split) + 1 - demand.first_split;
  if (splits < 2) return demand;
  demand.splits = splits;
  demand.whole = {static_cast<int>((first_visible(last) + split - 1) / split), static_cast<int>((first + 1) / split)};
  return demand;
}

/// A split of a sequence lies in the same blocks as that of the sequence before. For a whole warp.
__device__ bool has_blocks_of_the_one_before(const PlanCall& call, int sequence, int split) {
  const int size = call.shape.block_size, positions = call.shape.tiles.split;
  const int end = ((split + 1) * positions + size - 1) / size;
  const int32_t* own = call.block_table + sequence * call.block_table_stride;
  const int32_t* before = own - call.block_table_stride;
  bool same = true;
  for (int b = split * positions / size + static_cast<int>(threadIdx.x) % 32; b < end; b += 32) {
    same = same && own[b] == before[b];
  }
  return __all_sync(kAllLanes, same) != 0;
}

/// Fills work.common: from the first split that this sequence and the one before both see in whole up to the first in
/// other blocks.
__global__ void compare_tables_kernel(PlanCall call) {
  using Flags = bool[kWarps];
  GPU_SHARED(Flags, same);
  const int sequence = static_cast<int>(blockIdx.x), warp = static_cast<int>(threadIdx.x) / 32;
  SplitRange common{0, 0};
  if (sequence > 0) {
    const Demand own = demand_of(call, sequence), before = demand_of(call, sequence - 1);
    if (own.rows == before.rows) {
      common = {own.whole.begin > before.whole.begin ? own.whole.begin : before.whole.begin,
                own.whole.end < before.whole.end ? own.whole.end : before.whole.end};
    }
  }
  for (int first = common.begin; first < common.end; first += kWarps) {
    const int split = first + warp;
    const bool is_same = split >= common.end || has_blocks_of_the_one_before(call, sequence, split);
    if (threadIdx.x % 32 == 0) same[warp] = is_same;
    __syncthreads();
    for (int w = kWarps - 1; w >= 0; --w) {
      if (!same[w]) common.end = first + w;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) call.work.common[sequence] = common;
}

/// An item against all positions.
__device__ void fill_item(const PlanCall& call, int index) {
  int low = 0, high = call.num_sequences;  // shares[low].first_item <= index < shares[high].first_item
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (call.work.shares[middle].first_item <= index ? low : high) = middle;
  }
  const int rows = call.rows_of(low), most = call.shape.tiles.rows;
  const int first_row = (index - call.work.shares[low].first_item) * most;
  call.work.items[index] = {.sequence = low,
                            .first_row = first_row,
                            .num_rows = rows - first_row < most ? rows - first_row : most,
                            .split = -1,
                            .rows_each = rows};
}

/// How many sequences of so many rows may share an item. Small ones cost nothing; larger ones take longer, and are for
/// steps that keep the device busy nevertheless.
__device__ int most_mates(const AttentionShape& shape, int rows, int splits) {
  const int fitting = shape.tiles.rows / rows, small = shape.tiles.small_rows / rows;
  const int spare = splits / shape.busy_items;
  const int wanted = shape.mates > 0 ? shape.mates : small > spare ? small : spare;
  return wanted < fitting ? wanted : fitting;
}

/// The items of every kWarps-th split that is computed apart, for a whole warp: each goes to take(its number among
/// them, item) in one lane. Sequences that have a split in common with their neighbours are one item, as far as the rows
/// fit into a tile, and none across a multiple of 32. splits: of the whole step. Returns the number of items.
template <typename Take>
__device__ int list_splits(const PlanCall& call, int splits, Take&& take) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int count = 0;
  for (int base = 0; base < call.num_sequences; base += 32) {
    const int sequence = base + lane;
    SplitRange own{1 << 30, 0}, common{0, 0};
    int rows = 1;
    if (sequence < call.num_sequences && call.work.shares[sequence].first_part >= 0) {
      const AttentionShare share = call.work.shares[sequence];
      own = {share.first_split, share.first_split + share.num_splits};
      if (call.compares && lane > 0) common = call.work.common[sequence];
      rows = call.rows_of(sequence);
    }
    const int mates = most_mates(call.shape, rows, splits);
    const int end = __reduce_max_sync(kAllLanes, own.end);
    for (int split = __reduce_min_sync(kAllLanes, own.begin) + warp; split < end; split += kWarps) {
      const bool is_own = own.contains(split);
      const unsigned computed = __ballot_sync(kAllLanes, is_own);
      const bool joins = common.contains(split) && (computed >> (lane - 1) & 1) != 0;
      const unsigned joined = __ballot_sync(kAllLanes, joins);
      const unsigned starts = ~joined & ((2u << lane) - 1);  // of runs, up to this lane; lane 0 is always one
      const int place = (lane - (31 - __clz(static_cast<int>(starts)))) % mates;
      const bool goes_on = lane < 31 && (joined >> (lane + 1) & 1) != 0 && place + 1 < mates;
      const unsigned lasts = __ballot_sync(kAllLanes, is_own && !goes_on);
      if (is_own && !goes_on) {
        take(count + __popc(lasts & ((1u << lane) - 1)), AttentionItem{.sequence = sequence - place,
                                                                        .first_row = 0,
                                                                        .num_rows = (place + 1) * rows,
                                                                        .split = split,
                                                                        .rows_each = rows});
      }
      count += __popc(lasts);
    }
  }
  return count;
}

__global__ void plan_attention_kernel(PlanCall call) {
  AttentionCounts all{};
  int all_parts = 0, own_splits = 0;
  for (int first = 0; first < call.num_sequences; first += kThreads) {
    const int sequence = first + static_cast<int>(threadIdx.x);
    const Demand demand = demand_of(call, sequence);
    int parts = 0, items = 0, merges = 0;
    const int wanted = demand.splits * demand.rows;
    const int first_part = all_parts + sum_before(wanted, parts);
    const bool apart = wanted > 0 && first_part + wanted <= call.shape.max_parts;
    const int tiles = (demand.rows + call.shape.tiles.rows - 1) / call.shape.tiles.rows;
    const int first_item = all.items + sum_before(apart ? 0 : tiles, items);
    const int merge = all.merges + sum_before(apart ? 1 : 0, merges);
    if (sequence < call.num_sequences) {
      call.work.shares[sequence] = {first_item, apart ? first_part : -1, demand.first_split, demand.splits};
    }
    if (apart) call.work.merges[merge] = {sequence, demand.rows, first_part, demand.splits};
    own_splits += apart ? demand.splits : 0;
    all_parts += parts;
    all.items += items;
    all.merges += merges;
  }
  if (threadIdx.x == 0) call.work.shares[call.num_sequences] = {all.items, -1, 0, 0};
  int splits = 0, items = 0;
  sum_before(own_splits, splits);  // its barriers make the shares known to all threads
  for (int i = static_cast<int>(threadIdx.x); i < all.items; i += kThreads) fill_item(call, i);
  const int count = list_splits(call, splits, [](int, const AttentionItem&) {});
  int first = all.items + sum_before(threadIdx.x % 32 == 0 ? count : 0, items);
  first = __shfl_sync(kAllLanes, first, 0);
  list_splits(call, splits, [&](int i, const AttentionItem& item) { call.work.items[first + i] = item; });
  all.items += items;
  if (threadIdx.x == 0) *call.work.counts = all;
}

/// Arrays of the lists, one behind the other, each at a multiple of 16 bytes.
struct Layout {
  int64_t shares, common, items, merges, bytes;
  Layout(const AttentionShape& shape, int64_t num_tokens, int64_t num_sequences) {
    const auto behind = [](int64_t begin, int64_t count, size_t size) {
      return (begin + count * static_cast<int64_t>(size) + 15) / 16 * 16;
    };
    shares = behind(0, 1, sizeof(AttentionCounts));
    common = behind(shares, num_sequences + 1, sizeof(AttentionShare));
    items = behind(common, num_sequences, sizeof(SplitRange));
    merges = behind(items, AttentionPlans::max_items(shape, num_tokens, num_sequences), sizeof(AttentionItem));
    bytes = behind(merges, num_sequences, sizeof(AttentionMerge));
  }
};

}  // namespace

int64_t AttentionPlans::max_items(const AttentionShape& shape, int64_t num_tokens, int64_t num_sequences) {
  return num_tokens * shape.group / shape.tiles.rows + num_sequences + shape.max_parts / shape.group;
}

int64_t AttentionPlans::bytes(const AttentionShape& shape, int64_t num_tokens, int64_t num_sequences) {
  return Layout(shape, num_tokens, num_sequences).bytes;
}

AttentionPlans::Plan& AttentionPlans::plan_of(const AttentionShape& shape) {
  for (Plan& plan : plans_) {
    if (plan.shape == shape) return plan;
  }
  return plans_.emplace_back(Plan{.shape = shape, .memory = {}});
}

void AttentionPlans::reserve(const AttentionShape& shape, int64_t num_tokens, int64_t num_sequences) {
  Plan& plan = plan_of(shape);
  if (num_tokens <= plan.num_tokens && num_sequences <= plan.num_sequences) return;
  plan.num_tokens = std::max(plan.num_tokens, num_tokens);
  plan.num_sequences = std::max(plan.num_sequences, num_sequences);
  outgrown_.push_back(std::move(plan.memory));
  plan.memory = memory_.allocate(bytes(shape, plan.num_tokens, plan.num_sequences));
  plan.step = -1;
}

AttentionWork AttentionPlans::work(const AttentionShape& shape, const StepTensors& step, cudaStream_t stream) {
  const int64_t num_sequences = step.seq_lens.cols();
  reserve(shape, step.positions.cols(), num_sequences);
  Plan& plan = plan_of(shape);
  const Layout layout(shape, plan.num_tokens, plan.num_sequences);
  auto* memory = static_cast<std::byte*>(plan.memory.data());
  const AttentionWork work{.counts = reinterpret_cast<AttentionCounts*>(memory),
                           .shares = reinterpret_cast<AttentionShare*>(memory + layout.shares),
                           .common = reinterpret_cast<SplitRange*>(memory + layout.common),
                           .items = reinterpret_cast<AttentionItem*>(memory + layout.items),
                           .merges = reinterpret_cast<AttentionMerge*>(memory + layout.merges)};
  if (plan.step == step_) return work;
  plan.step = step_;
  const TensorView& table = step.groups[static_cast<size_t>(shape.kv_group)].block_table;
  const PlanCall call{.work = work,
                      .shape = shape,
                      .cu_seqlens = static_cast<const int32_t*>(step.cu_seqlens.data()),
                      .positions = static_cast<const int64_t*>(step.positions.data()),
                      .block_table = static_cast<const int32_t*>(table.data()),
                      .block_table_stride = table.row_stride(),
                      .num_sequences = static_cast<int>(num_sequences),
                      .compares = shape.mates != 1 && num_sequences > 1 &&
                                  table.cols() * shape.block_size > shape.tiles.split};
  const auto launch = [&](auto* kernel, int64_t blocks, const char* name) {
    TM_CUDA(gpu::launch(kernel,
                        {.grid = dim3(static_cast<unsigned>(blocks)),
                         .block = kThreads,
                         .smem = 0,
                         .stream = stream,
                         .name = name},
                        call));
  };
  if (call.compares) launch(compare_tables_kernel, num_sequences, "compare_tables");
  launch(plan_attention_kernel, 1, "plan_attention");
  return work;
}

}  // namespace tokenmill::cuda
