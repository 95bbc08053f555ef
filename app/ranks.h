#pragma once
#include <string>

#include "app/options.h"
#include "app/rank_plan.h"
#include "parallel/groups.h"
#include "parallel/mpi.h"
#include "parallel/topology.h"

namespace tokenmill::app {

/// This rank among the others.
struct Ranks {
  parallel::Topology topology;
  parallel::Groups groups;
  RankShare share;
  int world_rank = 0;
  /// Computes rows; the other ranks of its replica follow it.
  bool leads() const { return groups.replica.rank() == 0; }
};

/// Collective: where every rank is, the grid laid over them, this rank's cores. Sets the log prefix of ranks other than
/// 0.
Ranks join_ranks(const RunOptions& options, const parallel::Comm& world);

/// Collective: with --cpu-isa auto, the best kernel family that every rank's CPU has: rows must not depend on which
/// rank computes them. A name the user gave is returned as it is (make_ops checks it).
std::string common_cpu_isa(const RunOptions& options, const parallel::Comm& world);

}  // namespace tokenmill::app
