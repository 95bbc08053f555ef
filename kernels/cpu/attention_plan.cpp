// The host side of attention: units of work once per step, tasks per layer. Tasks are taken from a shared counter,
// dearest first; which thread computes a task, and whether a long sequence's splits go to several threads, changes no
// bit.
#include <algorithm>
#include <atomic>

#include "kernels/core/check.h"
#include "kernels/cpu/attention_task.h"
#include "kernels/cpu/cpu_ops.h"

namespace tokenmill::cpu {
namespace {

constexpr int64_t kUnitTokens = 16;
constexpr int64_t kTasksPerThread = 4;  // fewer than that leave threads idle near the end

int64_t split_tasks_per_round(int num_threads) { return 16 * num_threads; }

int64_t unit_cost(const AttentionUnit& unit) { return unit.num_tokens * (unit.last_position + 1); }

struct SplitRange {
  int64_t begin, end;
};

SplitRange splits_of(const AttentionUnit& unit, int64_t window) {
  const int64_t low = window > 0 ? std::max<int64_t>(unit.first_position + 1 - window, 0) : 0;
  return {low / kKvSplit, unit.last_position / kKvSplit + 1};
}

}  // namespace

void CpuOps::plan(const StepTensors& step) {
  stream_.submit([=, this] { make_plan(step); });
}

void CpuOps::make_plan(const StepTensors& step) {
  units_.clear();
  const auto* cu_seqlens = step.cu_seqlens.as<int32_t>();
  const auto* positions = step.positions.as<int64_t>();
  const int64_t num_sequences = step.seq_lens.cols();
  for (int64_t s = 0; s < num_sequences; ++s) {
    TM_ASSERT(cu_seqlens[s] <= cu_seqlens[s + 1] && cu_seqlens[s + 1] <= step.token_ids.cols(),
              "cu_seqlens of sequence {}: {} to {} of {} tokens", s, cu_seqlens[s], cu_seqlens[s + 1],
              step.token_ids.cols());
    for (int64_t t = cu_seqlens[s]; t < cu_seqlens[s + 1]; t += kUnitTokens) {
      const int64_t count = std::min<int64_t>(kUnitTokens, cu_seqlens[s + 1] - t);
      const auto [low, high] = std::minmax_element(positions + t, positions + t + count);
      TM_ASSERT(*low >= 0 && *high < step.seq_lens.as<int64_t>()[s], "sequence {}: position {} of a context of {}", s,
                *high, step.seq_lens.as<int64_t>()[s]);
      units_.push_back({s, t, count, *low, *high});
    }
  }
  std::sort(units_.begin(), units_.end(), [](const AttentionUnit& a, const AttentionUnit& b) {
    return unit_cost(a) != unit_cost(b) ? unit_cost(a) > unit_cost(b) : a.token_begin < b.token_begin;
  });
}

void CpuOps::do_attention(TensorView out, TensorView q, const StepTensors& step, KvLayer kv,
                          const AttentionParams& params) {
  stream_.submit([=, this] { run_attention(out, q, step, kv, params); }, OpKind::kAttention);
}

void CpuOps::run_attention(TensorView out, TensorView q, const StepTensors& step, KvLayer kv,
                           const AttentionParams& params) {
  const auto& pool = dynamic_cast<const CpuKvPool&>(*kv.pool);
  const KvPageLayout& layout = pool.layout();
  const TensorView table = step.groups[static_cast<size_t>(kv.group)].block_table;
  const int64_t heads = layout.num_kv_heads, group = q.cols() / layout.k_dim / heads;
  std::vector<AttentionTask>& tasks = attention_tasks_;
  tasks.clear();
  int64_t cost = 0;
  for (const AttentionUnit& unit : units_) {
    const SplitRange splits = splits_of(unit, params.window);
    cost += unit_cost(unit) * heads * group;
    for (int64_t head = 0; head < heads; ++head) {
      tasks.push_back({.q = q,
                       .out = out,
                       .token_begin = unit.token_begin,
                       .num_tokens = unit.num_tokens,
                       .kv_head = head,
                       .group = group,
                       .positions = step.positions.as<int64_t>(),
                       .block_table = table.row<int32_t>(unit.sequence),
                       .pages = pool.data(),
                       .layout = &layout,
                       .layer = kv.layer,
                       .params = params,
                       .split_begin = splits.begin,
                       .split_end = splits.end});
    }
  }
  const auto num_tasks = static_cast<int64_t>(tasks.size());
  if (team_.num_threads() > 1 && num_tasks < kTasksPerThread * team_.num_threads()) {
    attend_by_split(cost * layout.k_dim / 4);
  } else {
    attend(tasks, cost * layout.k_dim / 4);
  }
}

void CpuOps::attend(std::span<AttentionTask> tasks, int64_t operations) {
  const AttentionKernels& kernels = attention_kernels(isa_);
  std::atomic<size_t> next{0};
  team_.run_sized(operations, [&](int thread) {
    for (size_t i = next.fetch_add(1, std::memory_order_relaxed); i < tasks.size();
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      tasks[i].scratch = thread_scratch(thread).get(attention_scratch_floats(*tasks[i].layout));
      kernels.attend(tasks[i]);
    }
  });
}

// With few tasks the splits of a long context are spread over the team and merged afterwards, in the same order. In
// rounds, so that their states need no more memory for a longer context.
void CpuOps::attend_by_split(int64_t operations) {
  const std::span<AttentionTask> tasks = attention_tasks_;
  if (tasks.empty()) return;
  const AttentionKernels& kernels = attention_kernels(isa_);
  const int64_t state_floats = attention_state_floats(*tasks[0].layout);
  const auto rows_of = [](const AttentionTask& task) { return task.num_tokens * task.group; };
  int64_t total_rows = 0, most_rows = 0, num_splits = 0;
  for (const AttentionTask& task : tasks) {
    total_rows += rows_of(task);
    most_rows = std::max(most_rows, rows_of(task));
    num_splits += task.split_end - task.split_begin;
  }
  const int64_t round = std::min(num_splits, split_tasks_per_round(team_.num_threads()));
  float* const totals = shared_scratch_.get((total_rows + round * most_rows) * state_floats);
  float* const states = totals + total_rows * state_floats;

  split_tasks_.clear();
  split_totals_.clear();
  const auto finish_round = [&] {
    attend(split_tasks_, operations * static_cast<int64_t>(split_tasks_.size()) / num_splits);
    for (size_t i = 0; i < split_tasks_.size(); ++i) {
      const SplitTotal& total = split_totals_[i];
      const AttentionTask& split = split_tasks_[i];
      if (total.is_first) {
        std::copy_n(split.state, rows_of(split) * state_floats, total.state);
      } else {
        kernels.merge(total.state, split.state, rows_of(split), state_floats);
      }
    }
    split_tasks_.clear();
    split_totals_.clear();
  };
  float* total = totals;
  for (const AttentionTask& task : tasks) {
    for (int64_t split = task.split_begin; split < task.split_end; ++split) {
      AttentionTask& part = split_tasks_.emplace_back(task);
      part.split_begin = split;
      part.split_end = split + 1;
      part.state = states + (static_cast<int64_t>(split_tasks_.size()) - 1) * most_rows * state_floats;
      split_totals_.push_back({total, split == task.split_begin});
      if (static_cast<int64_t>(split_tasks_.size()) == round) finish_round();
    }
    total += rows_of(task) * state_floats;
  }
  finish_round();
  total = totals;
  for (const AttentionTask& task : tasks) {
    kernels.finish(task, total);
    total += rows_of(task) * state_floats;
  }
}

int64_t CpuOps::attention_workspace_bytes(const WorkspaceRequest& request) const {
  const int64_t threads = team_.num_threads();
  int64_t floats = 0, shared = 0;
  for (const KvSpec& spec : request.kv_groups) {
    const KvPageLayout layout(spec);
    const int64_t rows = kUnitTokens * std::max<int64_t>(1, request.num_heads / spec.num_kv_heads);
    floats = std::max(floats, attention_scratch_floats(layout));
    shared = std::max(shared, (kTasksPerThread * threads + split_tasks_per_round(static_cast<int>(threads))) * rows *
                                  attention_state_floats(layout));
  }
  return (threads * floats + (threads > 1 ? shared : 0)) * static_cast<int64_t>(sizeof(float));
}

}  // namespace tokenmill::cpu
