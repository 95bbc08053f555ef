#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "app/model_choice.h"
#include "engine/memory_plan.h"
#include "engine/models/decoder.h"
#include "engine/models/shard.h"
#include "engine/models/weights.h"
#include "engine/runner.h"
#include "kernels/ops.h"
#include "parallel/groups.h"

namespace tokenmill::app {

/// What a rank has of its node.
struct RankShare {
  int num_threads = 1;    ///< its share of the affinity mask
  int ranks_on_device = 1;  ///< ranks that share the memory of its device, for the CPU the node's
  int weight_sharers = 1;  ///< ranks that have one copy of the weights between them
  int64_t window_bytes = 0;  ///< parallel::planned_window_bytes()
};

/// All but weight_sharers. places: lay_grid(). The ranks of a node take its devices in turn.
RankShare share_of(const parallel::Topology& topology, const std::vector<parallel::GridPlace>& places, int rank,
                   int devices_on_node = 1);

/// What one rank will hold and how its memory is divided, before anything large is read or allocated.
struct RankPlan {
  ModelShard shard;
  std::unique_ptr<WeightBuilder> builder;  ///< refers to the choice's checkpoint; has not placed anything
  std::unique_ptr<Decoder> model;          ///< registered with the builder
  RunnerLimits limits;
  MemoryRequest request;
  MemoryPlan memory;  ///< of request
};

/// How many sequences may have penalties or biases at once: all of them when the job's or the model's defaults give
/// every row some, else as many as have their tables, 8 bytes an id of the vocabulary, in 256 MiB. The same on every
/// rank.
int64_t choose_max_adjusted(const RunOptions& options, const GenerationDefaults& model, int64_t vocab_size);

/// Local arithmetic: needs no launcher and no other rank. choice outlives the plan. Throws Error as Decoder,
/// plan_memory.
RankPlan plan_rank(const RunOptions& options, const RankShare& share, const ModelChoice& choice, Ops& ops,
                   const ModelShard& shard);

/// Divides the memory again, now that it is known how much of it the driver holds.
void plan_again(RankPlan& plan, int64_t driver_bytes);

/// Lowers the plan to at most num_blocks KV blocks (per group): what every rank of the replica has room for.
void limit_blocks(RankPlan& plan, const std::vector<int64_t>& num_blocks);

}  // namespace tokenmill::app
