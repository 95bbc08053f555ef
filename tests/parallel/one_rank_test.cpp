// TOKENMILL_MPI=off: a world of one rank, without an MPI library.
#include <doctest/doctest.h>

#include <unistd.h>

#include <array>

#include "parallel/groups.h"
#include "parallel/host_channel.h"
#include "parallel/mpi.h"

namespace tokenmill::parallel {
namespace {

static_assert(!kHasMpi);

TEST_CASE("a session without MPI is a world of one rank, and what ranks do together gives its own part back") {
  MpiSession session({.exit_code = [](ErrorKind kind) { return kind == ErrorKind::kIo ? 4 : 1; },
                      .print = [](const Error&) {}});
  const Comm& world = session.world();
  CHECK(world.rank() == 0);
  CHECK(world.size() == 1);
  CHECK(session.library_version() == "no MPI (one rank)");
  std::array<char, 256> name{};
  REQUIRE(gethostname(name.data(), name.size() - 1) == 0);
  CHECK(host_name() == name.data());
  CHECK(world_place().empty());

  CHECK(gather_values(world, 7.5) == std::vector<double>{7.5});
  CHECK(gather_bytes(world, "") == std::vector<std::string>{""});
  std::string bytes = "kept";
  broadcast_bytes(world, bytes, 0);
  CHECK(bytes == "kept");
  CHECK_THROWS_WITH_AS(broadcast_bytes(world, bytes, 1), doctest::Contains("MPI_ERR_ROOT"), Error);

  agree(world, std::nullopt);
  CHECK_THROWS_WITH_AS(agree(world, Error(ErrorKind::kIo, "no such file")), "no such file", AgreedError);
  CHECK(session.guard([&]() -> int {
    run_on_root(world, [] { throw Error(ErrorKind::kIo, "no such file"); });
    return 0;
  }) == 4);

  const Topology topology = gather_topology(world);
  CHECK(topology.num_nodes == 1);
  const Groups groups = make_groups(world, topology, resolve_grid({}, world.size()));
  for (const Comm* comm : {&groups.replica, &groups.tp, &groups.pp, &groups.dp, &groups.node, &groups.numa}) {
    CHECK(comm->rank() == 0);
    CHECK(comm->size() == 1);
  }

  HostChannel channel(world);
  CHECK_FALSE(channel.poll());
  CHECK(channel.flush(0));
  CHECK_THROWS_WITH_AS(channel.send(0, 1, {}), doctest::Contains("MPI_ERR_RANK"), Error);
}

}  // namespace
}  // namespace tokenmill::parallel
