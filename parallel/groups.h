#pragma once
#include <vector>

#include "parallel/mpi.h"
#include "parallel/topology.h"

namespace tokenmill::parallel {

/// How many ranks each kind of parallelism has. dp 0: whatever the ranks leave.
struct Grid {
  int dp = 0;
  int pp = 1;
  int tp = 1;
  bool operator==(const Grid&) const = default;
};

/// A rank's coordinates in the grid.
struct GridPlace {
  int dp_rank = 0;
  int pp_rank = 0;
  int tp_rank = 0;
  bool operator==(const GridPlace&) const = default;
};

/// Fills in dp. Throws Error(kConfig) naming the numbers and those that would work when dp x pp x tp is not num_ranks.
Grid resolve_grid(const Grid& asked, int num_ranks);

/// Pure: coordinates by world rank. The grid is laid over the ranks sorted by (node, local rank), tp fastest, then pp,
/// then dp, so that the launcher's placement (--map-by node, uneven nodes) does not change who works with whom:
///
///     position in that order   0    1    2    3    4    5    6    7
///     dp 2 x pp 2 x tp 2      [t0   t1] [t0   t1] [t0   t1] [t0   t1]
///                             [ pp 0  ] [ pp 1  ] [ pp 0  ] [ pp 1  ]
///                             [     replica 0   ] [     replica 1   ]
std::vector<GridPlace> lay_grid(const Topology& topology, const Grid& grid);

/// This rank's communicators in the grid.
struct Groups {
  Grid grid;
  GridPlace place;
  Comm replica;  ///< the pp x tp ranks that hold one copy of the model; rank = pp_rank * tp + tp_rank, the leader is 0
  Comm tp;       ///< same replica and stage; rank = tp_rank
  Comm pp;       ///< same replica and tp_rank; rank = pp_rank
  Comm dp;       ///< same place in every replica; rank = dp_rank
  Comm node;     ///< the ranks of this node, whatever their replica; rank = local rank. They can share memory
  /// Of them, those in the same memory domains (Topology::are_near()), by local rank. Ranks bound to one socket of
  /// several domains are a group; so are ranks that are not bound at all, and those whose domains are not known.
  Comm numa;
  /// World rank of each replica's leader, by dp_rank.
  std::vector<int> leaders;
};

/// Collective over world; grid must be resolved.
Groups make_groups(const Comm& world, const Topology& topology, const Grid& grid);

}  // namespace tokenmill::parallel
