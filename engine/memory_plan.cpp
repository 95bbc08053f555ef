#include "engine/memory_plan.h"

#include <fmt/format.h>

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

std::string MemoryPlan::describe() const {
  return fmt::format("weights {}, activations {}, KV {} ({} blocks, {} tokens) of {}", format_bytes(weight_bytes),
                     format_bytes(activation_bytes), format_bytes(kv_bytes), num_blocks.empty() ? 0 : num_blocks[0],
                     kv_tokens, format_bytes(budget_bytes));
}

namespace {

/// The option that asked for the KV blocks, and what to do about it.
const char* kv_remedy(const MemoryRequest& r) {
  if (r.num_blocks) return "lower --num-gpu-blocks-override";
  if (r.kv_cache_bytes) return "lower --kv-cache-memory-bytes";
  return "lower --max-num-batched-tokens, --max-num-seqs or --max-logprobs";
}

[[noreturn]] void refuse_too_few(const MemoryRequest& r, int64_t left_bytes, int64_t blocks, int64_t per_sequence,
                                 int64_t per_block) {
  if (r.num_blocks)
    throw Error(ErrorKind::kConfig, "--num-gpu-blocks-override is {}; at least one block is needed", *r.num_blocks);
  const std::string needed = fmt::format("one sequence of --max-model-len {} needs {} blocks ({})", r.max_model_len,
                                         per_sequence, format_bytes(per_sequence * per_block));
  if (r.kv_cache_bytes)
    throw Error(
        ErrorKind::kConfig,
        "--kv-cache-memory-bytes {} holds {} blocks of {} tokens; {}: give at least that or lower --max-model-len",
        format_bytes(*r.kv_cache_bytes), blocks, r.kv_groups[0].block_size, needed);
  throw Error(ErrorKind::kDevice,
              "{} are left for the KV cache: {} blocks of {} tokens; {}; lower --max-model-len or give more memory",
              format_bytes(std::max<int64_t>(left_bytes, 0)), blocks, r.kv_groups[0].block_size, needed);
}

}  // namespace

MemoryPlan plan_memory(const MemoryRequest& r) {
  TM_ASSERT(!r.kv_groups.empty() && r.kv_groups.size() == r.kv_block_bytes.size() && r.ranks_on_device >= 1);
  MemoryPlan plan;
  plan.budget_bytes = static_cast<int64_t>(static_cast<double>(r.total_bytes) * r.utilization / r.ranks_on_device);
  plan.weight_bytes = r.weight_bytes;
  plan.activation_bytes = r.activation_bytes;
  const int64_t per_block = std::accumulate(r.kv_block_bytes.begin(), r.kv_block_bytes.end(), int64_t{0});
  const int64_t block_size = r.kv_groups[0].block_size;
  const int64_t per_sequence = (r.max_model_len + block_size - 1) / block_size;
  const int64_t left = plan.budget_bytes - r.weight_bytes - r.activation_bytes;
  int64_t blocks = 0;
  if (r.num_blocks) {
    blocks = *r.num_blocks;
  } else {
    const int64_t bytes = r.kv_cache_bytes.value_or(std::max<int64_t>(left, 0));
    blocks = std::min(bytes / per_block, per_sequence * r.max_num_seqs);
  }
  plan.kv_bytes = blocks * per_block;
  if (plan.kv_bytes > left) {
    throw Error(ErrorKind::kDevice,
                "{} of {} ({}% shared by {} rank(s)) do not hold weights {}, activations {} and KV cache {}; {}, raise "
                "--gpu-memory-utilization, or use fewer ranks",
                format_bytes(plan.budget_bytes), format_bytes(r.total_bytes), std::lround(r.utilization * 100),
                r.ranks_on_device, format_bytes(r.weight_bytes), format_bytes(r.activation_bytes),
                format_bytes(plan.kv_bytes), kv_remedy(r));
  }
  if (blocks < 1 || (!r.num_blocks && blocks < per_sequence)) refuse_too_few(r, left, blocks, per_sequence, per_block);
  plan.num_blocks.assign(r.kv_groups.size(), blocks);
  plan.kv_tokens = blocks * block_size;
  return plan;
}

}  // namespace tokenmill
