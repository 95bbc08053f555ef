#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/models/load_plan.h"

namespace tokenmill {

/// A chunk's way through the nodes that need it: the first reads it from its file, each passes it on to the next.
struct ChunkRoute {
  size_t id = 0;  ///< the chunk's number in the plan that all nodes share; ascends
  int from = -1;  ///< node that sends it to this one; -1: this one reads it
  int to = -1;    ///< node that this one sends it to; -1: none
  int64_t length = 0;
  bool operator==(const ChunkRoute&) const = default;
};

/// Every chunk of a plan, read by this node and passed to none.
std::vector<ChunkRoute> read_all(const LoadPlan& load);

/// Pure. The chunks that `node` needs, in the plan's order. load: of the union of the nodes' needs. The nodes that need
/// a chunk form a chain; they take turns at its head, so that they read disjoint parts of the files at the same time,
/// and each sends and receives about as much as the others.
std::vector<ChunkRoute> plan_routes(const LoadPlan& load, std::span<const std::vector<TensorNeed>> needs_by_node,
                                    int node);

}  // namespace tokenmill
