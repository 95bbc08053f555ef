// Work lists of the attention backends with matrix instructions: which row tiles and splits a step has.
// Work:   one block. Threads over sequences, with running sums of what they need; then threads over the items.
// Order:  items by sequence. Splits are computed apart where a sequence has but one small row tile (decode), in order
// of
//         sequences as far as there is room for parts. A row's bits do not depend on it.
// Bytes:  5 words per item. Measured: not yet on a device.
#include <algorithm>
#include <cstddef>

#include "kernels/core/check.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/cuda_check.h"

namespace tokenmill::cuda {
namespace {

constexpr int kThreads = 256;

struct PlanCall {
  AttentionWork work;
  AttentionShape shape;
  const int32_t* cu_seqlens;
  const int64_t* positions;
  int num_sequences;
};

/// Sum of the values of all threads before this one; total: of all.
__device__ int sum_before(int value, int& total) {
  using Sums = int[kThreads];
  GPU_SHARED(Sums, sums);
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  sums[thread] = value;
  int sum = value;
  for (int distance = 1; distance < kThreads; distance *= 2) {
    __syncthreads();
    const int before = thread >= distance ? sums[thread - distance] : 0;
    __syncthreads();
    sum += before;
    sums[thread] = sum;
  }
  __syncthreads();
  total = sums[kThreads - 1];
  return sum - value;
}

/// What one sequence asks for.
struct Demand {
  int rows = 0, first_split = 0, splits = 0;  // splits: 0 unless they may be computed apart
};

__device__ Demand demand_of(const PlanCall& call, int sequence) {
  Demand demand;
  if (sequence >= call.num_sequences) return demand;
  const int begin = call.cu_seqlens[sequence], end = call.cu_seqlens[sequence + 1];
  if (begin >= end) return demand;
  demand.rows = (end - begin) * call.shape.group;
  if (demand.rows > kSmallRows) return demand;
  const int64_t first = call.positions[begin], last = call.positions[end - 1];
  const int64_t low = call.shape.window > 0 && first >= call.shape.window ? first + 1 - call.shape.window : 0;
  demand.first_split = static_cast<int>(low / call.shape.tiles.split);
  const int splits = static_cast<int>(last / call.shape.tiles.split) + 1 - demand.first_split;
  demand.splits = splits > 1 ? splits : 0;
  return demand;
}

__device__ void fill_item(const PlanCall& call, int index) {
  int low = 0, high = call.num_sequences;  // shares[low].first_item <= index < shares[high].first_item
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (call.work.shares[middle].first_item <= index ? low : high) = middle;
  }
  const AttentionShare share = call.work.shares[low];
  const int rows = (call.cu_seqlens[low + 1] - call.cu_seqlens[low]) * call.shape.group;
  const int local = index - share.first_item;
  AttentionItem item{.sequence = low, .first_row = 0, .num_rows = rows, .split = -1, .part = -1};
  if (share.first_part >= 0) {
    item.split = share.first_split + local;
    item.part = share.first_part + local;
  } else {
    const int most = call.shape.tiles.rows;
    item.first_row = local * most;
    item.num_rows = rows - item.first_row < most ? rows - item.first_row : most;
  }
  call.work.items[index] = item;
}

__global__ void plan_attention_kernel(PlanCall call) {
  AttentionCounts all{};
  int all_parts = 0;
  for (int first = 0; first < call.num_sequences; first += kThreads) {
    const int sequence = first + static_cast<int>(threadIdx.x);
    const Demand demand = demand_of(call, sequence);
    int parts = 0, items = 0, merges = 0;
    const int first_part = all_parts + sum_before(demand.splits, parts);
    const bool apart = demand.splits > 0 && first_part + demand.splits <= call.shape.max_parts;
    const int tiles = (demand.rows + call.shape.tiles.rows - 1) / call.shape.tiles.rows;
    const int first_item = all.items + sum_before(apart ? demand.splits : tiles, items);
    const int merge = all.merges + sum_before(apart ? 1 : 0, merges);
    if (sequence < call.num_sequences) {
      call.work.shares[sequence] = {first_item, apart ? first_part : -1, demand.first_split};
    }
    if (apart) call.work.merges[merge] = {sequence, demand.rows, first_part, demand.splits};
    all_parts += parts;
    all.items += items;
    all.merges += merges;
  }
  if (threadIdx.x == 0) {
    call.work.shares[call.num_sequences] = {all.items, -1, 0};
    *call.work.counts = all;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < all.items; i += kThreads) fill_item(call, i);
}

/// Arrays of the lists, one behind the other, each at a multiple of 16 bytes.
struct Layout {
  int64_t shares, items, merges, bytes;
  Layout(const AttentionShape& shape, int64_t num_tokens, int64_t num_sequences) {
    const auto behind = [](int64_t begin, int64_t count, size_t size) {
      return (begin + count * static_cast<int64_t>(size) + 15) / 16 * 16;
    };
    shares = behind(0, 1, sizeof(AttentionCounts));
    items = behind(shares, num_sequences + 1, sizeof(AttentionShare));
    merges = behind(items, AttentionPlans::max_items(shape, num_tokens, num_sequences), sizeof(AttentionItem));
    bytes = behind(merges, num_sequences, sizeof(AttentionMerge));
  }
};

}  // namespace

int64_t AttentionPlans::max_items(const AttentionShape& shape, int64_t num_tokens, int64_t num_sequences) {
  return num_tokens * shape.group / shape.tiles.rows + num_sequences + shape.max_parts;
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
                           .items = reinterpret_cast<AttentionItem*>(memory + layout.items),
                           .merges = reinterpret_cast<AttentionMerge*>(memory + layout.merges)};
  if (plan.step == step_) return work;
  plan.step = step_;
  const PlanCall call{.work = work,
                      .shape = shape,
                      .cu_seqlens = static_cast<const int32_t*>(step.cu_seqlens.data()),
                      .positions = static_cast<const int64_t*>(step.positions.data()),
                      .num_sequences = static_cast<int>(num_sequences)};
  TM_CUDA(gpu::launch(plan_attention_kernel,
                      {.grid = 1, .block = kThreads, .smem = 0, .stream = stream, .name = "plan_attention"}, call));
  return work;
}

}  // namespace tokenmill::cuda
