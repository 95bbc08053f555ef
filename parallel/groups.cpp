#include "parallel/groups.h"

#include <fmt/format.h>

#include "kernels/core/check.h"

namespace tokenmill::parallel {

Grid resolve_grid(const Grid& asked, int num_ranks) {
  TM_ASSERT(asked.tp >= 1 && asked.pp >= 1 && asked.dp >= 0 && num_ranks >= 1);
  const int64_t replica = int64_t{asked.tp} * asked.pp;
  if (asked.dp != 0 && asked.dp * replica != num_ranks)
    throw Error(
        ErrorKind::kConfig,
        "--data-parallel-size {} x --pipeline-parallel-size {} x --tensor-parallel-size {} = {} ranks, and there "
        "{}; start {}{}",
        asked.dp, asked.pp, asked.tp, asked.dp * replica, num_ranks == 1 ? "is 1" : fmt::format("are {}", num_ranks),
        asked.dp * replica, num_ranks % replica == 0 ? " or leave --data-parallel-size out" : "");
  if (num_ranks % replica != 0)
    throw Error(ErrorKind::kConfig,
                "--pipeline-parallel-size {} x --tensor-parallel-size {} = {} ranks a replica, and there {}: no whole "
                "number of replicas; start {}{}",
                asked.pp, asked.tp, replica, num_ranks == 1 ? "is 1" : fmt::format("are {}", num_ranks),
                num_ranks > replica ? fmt::format("{} or ", num_ranks / replica * replica) : "",
                (num_ranks / replica + 1) * replica);
  return {.dp = static_cast<int>(num_ranks / replica), .pp = asked.pp, .tp = asked.tp};
}

std::vector<GridPlace> lay_grid(const Topology& topology, const Grid& grid) {
  const std::vector<int> order = topology.ranks_by_node();
  TM_ASSERT(static_cast<int>(order.size()) == grid.dp * grid.pp * grid.tp);
  std::vector<GridPlace> places(order.size());
  for (int position = 0; position < static_cast<int>(order.size()); ++position)
    places[static_cast<size_t>(order[static_cast<size_t>(position)])] = {.dp_rank = position / (grid.pp * grid.tp),
                                                                         .pp_rank = position / grid.tp % grid.pp,
                                                                         .tp_rank = position % grid.tp};
  return places;
}

Groups make_groups(const Comm& world, const Topology& topology, const Grid& grid) {
  const std::vector<GridPlace> places = lay_grid(topology, grid);
  const GridPlace here = places[static_cast<size_t>(world.rank())];
  Groups groups;
  groups.grid = grid;
  groups.place = here;
  groups.replica = world.split(here.dp_rank, here.pp_rank * grid.tp + here.tp_rank);
  groups.tp = groups.replica.split(here.pp_rank, here.tp_rank);
  groups.pp = groups.replica.split(here.tp_rank, here.pp_rank);
  groups.dp = world.split(here.pp_rank * grid.tp + here.tp_rank, here.dp_rank);
  const RankPlace& seat = topology.ranks[static_cast<size_t>(world.rank())];
  groups.node = world.split(seat.node, seat.local_rank);
  int first_near = 0;
  while (!topology.are_near(first_near, world.rank())) ++first_near;
  groups.numa = groups.node.split(first_near, seat.local_rank);
  groups.leaders.resize(static_cast<size_t>(grid.dp));
  for (int rank = 0; rank < world.size(); ++rank) {
    const GridPlace& place = places[static_cast<size_t>(rank)];
    if (place.pp_rank == 0 && place.tp_rank == 0) groups.leaders[static_cast<size_t>(place.dp_rank)] = rank;
  }
  return groups;
}

}  // namespace tokenmill::parallel
