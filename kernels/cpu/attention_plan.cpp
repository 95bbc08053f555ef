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
  stream_.submit([=, this] { run_attention(out, q, step, kv, params); });
}

void CpuOps::run_attention(TensorView out, TensorView q, const StepTensors& step, KvLayer kv,
                           const AttentionParams& params) {
  const auto& pool = dynamic_cast<const CpuKvPool&>(*kv.pool);
  const KvPageLayout& layout = pool.layout();
  const TensorView table = step.groups[static_cast<size_t>(kv.group)].block_table;
  const AttentionKernels& kernels = attention_kernels(isa_);
  const int64_t heads = layout.num_kv_heads, group = q.cols() / layout.k_dim / heads;
  const int64_t state_floats = attention_state_floats(layout);
  const auto num_units = static_cast<int64_t>(units_.size());

  const auto make_task = [&](const AttentionUnit& unit, int64_t head) {
    const SplitRange splits = splits_of(unit, params.window);
    return AttentionTask{.q = q,
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
                         .split_end = splits.end};
  };

  // With few tasks a long context's splits are spread over the team and merged afterwards, in the same order.
  split_tasks_.clear();
  int64_t state_rows = 0;
  if (team_.num_threads() > 1 && num_units * heads < 4 * team_.num_threads()) {
    for (int64_t u = 0; u < num_units; ++u) {
      const SplitRange splits = splits_of(units_[static_cast<size_t>(u)], params.window);
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t s = splits.begin; s < splits.end; ++s) {
          split_tasks_.push_back({u, h, s, state_rows});
          state_rows += units_[static_cast<size_t>(u)].num_tokens * group;
        }
      }
    }
  }
  const bool by_split = !split_tasks_.empty();
  float* states = by_split ? shared_scratch_.get(state_rows * state_floats) : nullptr;
  const int64_t num_tasks = by_split ? static_cast<int64_t>(split_tasks_.size()) : num_units * heads;

  std::atomic<int64_t> next{0};
  const auto work = [&](int thread) {
    float* scratch = thread_scratch(thread).get(attention_scratch_floats(layout));
    for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < num_tasks;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      AttentionTask task;
      if (by_split) {
        const SplitTask& split = split_tasks_[static_cast<size_t>(i)];
        task = make_task(units_[static_cast<size_t>(split.unit)], split.head);
        task.split_begin = split.split;
        task.split_end = split.split + 1;
        task.state = states + split.state_row * state_floats;
      } else {
        task = make_task(units_[static_cast<size_t>(i / heads)], i % heads);
      }
      task.scratch = scratch;
      kernels.attend(task);
    }
  };
  int64_t cost = 0;
  for (const AttentionUnit& unit : units_) cost += unit_cost(unit) * heads * group;
  team_.run_sized(cost * layout.k_dim / 4, work);
  for (size_t i = 0; i < split_tasks_.size();) {  // the splits of one (unit, head) follow each other
    const SplitTask& first = split_tasks_[i];
    const AttentionUnit& unit = units_[static_cast<size_t>(first.unit)];
    float* state = states + first.state_row * state_floats;
    size_t j = i + 1;
    for (; j < split_tasks_.size() && split_tasks_[j].unit == first.unit && split_tasks_[j].head == first.head; ++j) {
      kernels.merge(state, states + split_tasks_[j].state_row * state_floats, unit.num_tokens * group, state_floats);
    }
    kernels.finish(make_task(unit, first.head), state);
    i = j;
  }
}

}  // namespace tokenmill::cpu
