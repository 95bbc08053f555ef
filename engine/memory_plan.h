#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/kv_pool.h"

namespace tokenmill {

/// What a rank's memory is asked to hold; bytes.
struct MemoryRequest {
  int64_t total_bytes = 0;      ///< of the device (CPU: of the node, or its control group)
  double utilization = 0.9;     ///< share of it that all ranks on the device may use together
  int ranks_on_device = 1;      ///< ranks that share it
  int64_t weight_bytes = 0;     ///< of one copy
  int weight_sharers = 1;       ///< ranks on the device that have one copy of them in common; each counts its share
  int64_t activation_bytes = 0; ///< logits and step input included
  int64_t window_bytes = 0;     ///< memory through which it exchanges tensors with other ranks
  int64_t driver_bytes = 0;     ///< of a GPU, its share of what is beside these: context, libraries, graphs; measured
  std::vector<KvSpec> kv_groups;
  std::vector<int64_t> kv_block_bytes;  ///< per group
  std::optional<int64_t> kv_cache_bytes;  ///< --kv-cache-memory-bytes
  std::optional<int64_t> num_blocks;      ///< --num-gpu-blocks-override, per group
  int64_t max_num_seqs = 0, max_model_len = 0;
  int64_t max_num_batched_tokens = 0;  ///< the longest chunk
  int max_steps_in_flight = 1;         ///< a sliding window's blocks are those of the window and a chunk per such step
};

/// How it is divided. Pure arithmetic, the same on every rank for equal requests.
struct MemoryPlan {
  int64_t budget_bytes = 0;  ///< this rank's share
  int64_t weight_bytes = 0, activation_bytes = 0, window_bytes = 0, driver_bytes = 0, kv_bytes = 0;
  int weight_sharers = 1;
  std::vector<int64_t> num_blocks;  ///< per group, in proportion to what a sequence of max_model_len needs of each
  int64_t kv_tokens = 0;            ///< tokens the blocks of the first group hold
  std::string describe() const;     ///< one line for the banner; of several groups "4096 + 12 blocks"
};

/// KV gets what weights, activations, windows and the driver leave, but never more than max_num_seqs sequences of
/// max_model_len can use.
/// Throws Error(kDevice) with the numbers when weights do not fit or not one sequence of max_model_len fits;
/// Error(kConfig) when it is kv_cache_bytes or num_blocks that is too small.
MemoryPlan plan_memory(const MemoryRequest& request);

/// "1.25 GiB"
std::string format_bytes(int64_t bytes);

/// ", shared windows 3.01 MiB", empty where there are none: behind the activations.
std::string describe_windows(int64_t window_bytes);

}  // namespace tokenmill
