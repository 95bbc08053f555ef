#include <doctest/doctest.h>

#include "parallel/groups.h"
#include "parallel/mpi.h"
#include "parallel/topology.h"

namespace tokenmill::parallel {
namespace {

FatalPolicy policy() {
  return {.exit_code = [](ErrorKind kind) { return kind == ErrorKind::kInternal ? 1 : 4; },
          .print = [](const Error&) {}};
}

TEST_CASE("the gathered topology is the same everywhere and puts all ranks on this node") {
  const Comm world = Comm::world();
  const Topology topology = gather_topology(world);
  CHECK(topology.num_nodes == 1);
  REQUIRE(static_cast<int>(topology.ranks.size()) == world.size());
  for (int rank = 0; rank < world.size(); ++rank) CHECK(topology.ranks[rank].local_rank == rank);
  const RankPlace& here = topology.ranks[static_cast<size_t>(world.rank())];
  CHECK(here.cpus == CpuSet::of_this_process());
  CHECK(here.num_threads >= 1);
  CHECK_FALSE(here.host.empty());
}

TEST_CASE("communicators of a 2 x 1 x 2 grid have the ranks their coordinates say") {
  const Comm world = Comm::world();
  const Topology topology = gather_topology(world);
  const Groups groups = make_groups(world, topology, resolve_grid({.dp = 0, .pp = 1, .tp = 2}, world.size()));
  CHECK(groups.grid == Grid{2, 1, 2});
  CHECK(groups.place == GridPlace{world.rank() / 2, 0, world.rank() % 2});
  CHECK(groups.replica.size() == 2);
  CHECK(groups.replica.rank() == groups.place.tp_rank);
  CHECK(groups.tp.size() == 2);
  CHECK(groups.tp.rank() == groups.place.tp_rank);
  CHECK(groups.pp.size() == 1);
  CHECK(groups.dp.size() == 2);
  CHECK(groups.dp.rank() == groups.place.dp_rank);
  CHECK(groups.leaders == std::vector<int>{0, 2});
  CHECK(groups.node.size() == world.size());  // all on this machine
  CHECK(groups.node.rank() == topology.ranks[static_cast<size_t>(world.rank())].local_rank);
}

TEST_CASE("a session adopts a running MPI, and guard turns an agreed error into its exit code") {
  MpiSession session(policy());
  CHECK(session.library_version().find("MPI") != std::string::npos);
  CHECK(session.guard([] { return 3; }) == 3);
  CHECK(session.guard([&]() -> int {
    agree(session.world(), session.world().rank() == 1 ? std::optional(Error(ErrorKind::kIo, "x")) : std::nullopt);
    return 0;
  }) == 4);
}

TEST_CASE("TM_MPI names the call and the code") {
  MpiSession session(policy());
  CHECK_THROWS_WITH_AS(TM_MPI(MPI_Bcast(nullptr, 1, MPI_INT, 99, session.world().handle())),
                       doctest::Contains("MPI_ERR_ROOT"), Error);
}

}  // namespace
}  // namespace tokenmill::parallel
