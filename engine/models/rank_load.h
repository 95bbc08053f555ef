#pragma once
#include <optional>
#include <vector>

#include "engine/models/chunk_ring.h"
#include "engine/models/chunk_route.h"
#include "engine/models/load_plan.h"
#include "engine/models/loader.h"
#include "kernels/core/error.h"
#include "parallel/mpi.h"

namespace tokenmill {

/// What passes through one node's ring, and who uses it: the same on all of its ranks.
struct NodePlan {
  LoadPlan load;
  std::vector<ChunkRoute> chunks;         ///< of the ring, in order
  int rank = 0, num_ranks = 1;            ///< of the node
  const parallel::Comm* nodes = nullptr;  ///< on rank 0: one rank per node, when chunks come from other nodes
  bool relays = false;                    ///< chunks come from other nodes: the relay is the ring's last consumer

  ChunkRing::Shape ring_shape(int num_slots) const {
    return {load.reads.largest_chunk_bytes, num_slots, num_ranks + (relays ? 1 : 0)};
  }
};

/// One rank's part of loading: readers and relay on threads of their own, sinks on the calling thread.
class RankLoad {
 public:
  /// All outlive it.
  RankLoad(const WeightPlan& plan, const NodePlan& node, const LoadOptions& options, const ChunkRing& ring);
  /// Reads and fills until all is done or the ring is stopped; what failed here, if anything. Once.
  std::optional<Error> run();
  const LoadStats& stats() const { return stats_; }

 private:
  void read(size_t reader, double& seconds) const;
  void fill_sinks();

  const NodePlan& node_;
  const LoadOptions& options_;
  const ChunkRing& ring_;
  SinkFeed feed_;
  std::vector<size_t> own_chunks_;  // of the ring: those that this node reads
  LoadStats stats_;
};

/// What went wrong in function, if anything.
template <typename Function>
std::optional<Error> failure_of(Function&& function) {
  try {
    function();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorKind::kInternal, std::string(error.what()));
  }
}

}  // namespace tokenmill
