#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/models/shard.h"
#include "kernels/core/dtype.h"
#include "parallel/communicator.h"

namespace tokenmill::test {

struct ThreadReplicaOptions {
  std::string model;  ///< directory
  ModelGrid grid;
  DType dtype = DType::kF32;
  std::vector<Range> stages;  ///< layers of each; empty: balance_stages() with equal costs
  int64_t max_num_seqs = 4, max_num_batched_tokens = 64, max_model_len = 192, num_blocks = 60;
  int64_t overlap_from = 1 << 30;  ///< Decoder::overlap_from
  SchedulerOptions scheduler = {};
};

/// What one rank held and moved.
struct ThreadRank {
  int64_t weight_bytes = 0;
  int64_t kv_block_bytes = 0;  ///< per block, all groups
  parallel::TransferCounts tp, pp;
};

struct ThreadReplicaRun {
  std::vector<RequestOutput> outputs;  ///< by request_id 0, 1, ...
  std::vector<ThreadRank> ranks;       ///< rank = pp_rank * tp_size + tp_rank
  int64_t num_steps = 0;
  int64_t num_step_tokens = 0, num_logits_rows = 0;  ///< of all steps
  int64_t num_preemptions = 0;
};

/// Runs requests through one replica whose ranks are threads of this process: leader and followers as in a real one,
/// plans and results as bytes, ThreadGroup's communicators.
ThreadReplicaRun run_thread_replica(const ThreadReplicaOptions& options, const std::vector<Request>& requests);

}  // namespace tokenmill::test
