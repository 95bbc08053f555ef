#include "engine/memory_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/core/check.h"

namespace tokenmill {

std::string format_bytes(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  const char* unit = "KiB";
  double value = bytes / 1024.0;
  for (const char* next : {"MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return fmt::format("{:.2f} {}", value, unit);
}

std::string describe_windows(int64_t window_bytes) {
  return window_bytes > 0 ? fmt::format(", shared windows {}", format_bytes(window_bytes)) : "";
}

namespace {

std::string describe_driver(int64_t driver_bytes) {
  return driver_bytes > 0 ? fmt::format(", driver and graphs {}", format_bytes(driver_bytes)) : "";
}

}  // namespace

std::string MemoryPlan::describe() const {
  const std::string shared = weight_sharers > 1 ? fmt::format(" shared by {} ranks", weight_sharers) : "";
  return fmt::format("weights {}{}, activations {}{}{}, KV {} ({} blocks, {} tokens) of {}", format_bytes(weight_bytes),
                     shared, format_bytes(activation_bytes), describe_windows(window_bytes),
                     describe_driver(driver_bytes), format_bytes(kv_bytes), fmt::join(num_blocks, " + "), kv_tokens,
                     format_bytes(budget_bytes));
}

namespace {

/// The option that asked for the KV blocks, and what to do about it.
const char* kv_remedy(const MemoryRequest& r) {
  if (r.num_blocks) return "lower --num-gpu-blocks-override";
  if (r.kv_cache_bytes) return "lower --kv-cache-memory-bytes";
  return "lower --max-num-batched-tokens, --max-num-seqs or --max-logprobs";
}

/// What one sequence of max_model_len needs.
struct SequenceNeed {
  std::vector<int64_t> blocks;  // per group
  int64_t bytes = 0;
};

SequenceNeed sequence_need(const MemoryRequest& r) {
  SequenceNeed need;
  for (size_t g = 0; g < r.kv_groups.size(); ++g) {
    const int64_t chunk = r.max_num_batched_tokens * r.max_steps_in_flight;
    need.blocks.push_back(r.kv_groups[g].num_live_blocks_for(r.max_model_len, chunk));
    need.bytes += need.blocks[g] * r.kv_block_bytes[g];
  }
  return need;
}

/// Blocks per group in bytes: the same share of every group's need, and at most what max_num_seqs sequences can use. A
/// sliding window may have as much again where there is memory: what running sequences leave behind stays cached.
std::vector<int64_t> blocks_in(const MemoryRequest& r, const SequenceNeed& need, int64_t bytes) {
  std::vector<int64_t> blocks;
  for (size_t g = 0; g < need.blocks.size(); ++g) {
    const int64_t most = std::min(2 * need.blocks[g], r.kv_groups[g].num_blocks_for(r.max_model_len)) * r.max_num_seqs;
    const auto fitting = static_cast<int64_t>(static_cast<__int128>(bytes) * need.blocks[g] / need.bytes);
    blocks.push_back(std::min(fitting, most));
  }
  return blocks;
}

[[noreturn]] void refuse_too_few(const MemoryRequest& r, int64_t left_bytes, const SequenceNeed& need,
                                 const std::vector<int64_t>& blocks) {
  if (r.num_blocks)
    throw Error(ErrorKind::kConfig, "--num-gpu-blocks-override is {}; at least one block is needed", *r.num_blocks);
  const std::string needed = fmt::format("one sequence of --max-model-len {} needs {} blocks ({})", r.max_model_len,
                                         fmt::join(need.blocks, " + "), format_bytes(need.bytes));
  const std::string there = fmt::format("{} blocks of {} tokens", fmt::join(blocks, " + "), r.kv_groups[0].block_size);
  if (r.kv_cache_bytes)
    throw Error(ErrorKind::kConfig,
                "--kv-cache-memory-bytes {} holds {}; {}: give at least that or lower --max-model-len",
                format_bytes(*r.kv_cache_bytes), there, needed);
  throw Error(ErrorKind::kDevice, "{} are left for the KV cache: {}; {}; lower --max-model-len or give more memory",
              format_bytes(std::max<int64_t>(left_bytes, 0)), there, needed);
}

}  // namespace

MemoryPlan plan_memory(const MemoryRequest& r) {
  TM_ASSERT(!r.kv_groups.empty() && r.kv_groups.size() == r.kv_block_bytes.size() && r.ranks_on_device >= 1);
  MemoryPlan plan;
  plan.budget_bytes = static_cast<int64_t>(static_cast<double>(r.total_bytes) * r.utilization / r.ranks_on_device);
  plan.weight_bytes = r.weight_bytes;
  plan.weight_sharers = r.weight_sharers;
  plan.activation_bytes = r.activation_bytes;
  plan.window_bytes = r.window_bytes;
  plan.driver_bytes = r.driver_bytes;
  const int64_t own_weights = (r.weight_bytes + r.weight_sharers - 1) / r.weight_sharers;
  const int64_t left = plan.budget_bytes - own_weights - r.activation_bytes - r.window_bytes - r.driver_bytes;
  const SequenceNeed need = sequence_need(r);
  if (r.num_blocks) {
    plan.num_blocks.assign(r.kv_groups.size(), *r.num_blocks);
  } else {
    plan.num_blocks = blocks_in(r, need, r.kv_cache_bytes.value_or(std::max<int64_t>(left, 0)));
  }
  plan.kv_bytes =
      std::inner_product(plan.num_blocks.begin(), plan.num_blocks.end(), r.kv_block_bytes.begin(), int64_t{0});
  if (plan.kv_bytes > left) {
    throw Error(
        ErrorKind::kDevice,
        "{} of {} ({}% shared by {} rank(s)) do not hold weights {}, activations {}{}{} and KV cache {}; {}, raise "
        "--gpu-memory-utilization, or use fewer ranks",
        format_bytes(plan.budget_bytes), format_bytes(r.total_bytes), std::lround(r.utilization * 100),
        r.ranks_on_device, format_bytes(own_weights), format_bytes(r.activation_bytes),
        describe_windows(r.window_bytes), describe_driver(r.driver_bytes), format_bytes(plan.kv_bytes), kv_remedy(r));
  }
  for (size_t g = 0; g < need.blocks.size(); ++g) {
    if (plan.num_blocks[g] < (r.num_blocks ? 1 : need.blocks[g])) refuse_too_few(r, left, need, plan.num_blocks);
  }
  plan.kv_tokens = plan.num_blocks[0] * r.kv_groups[0].block_size;
  return plan;
}

}  // namespace tokenmill
