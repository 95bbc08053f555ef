#include "parallel/connect.h"

#include <doctest/doctest.h>

#include "parallel/shm_transport.h"

namespace tokenmill::parallel {
namespace {

/// Ranks block by block on nodes of four.
Topology nodes_of_four(int num_ranks) {
  std::vector<RankFacts> facts;
  for (int rank = 0; rank < num_ranks; ++rank) facts.push_back({"", rank / 4 * 4, CpuSet({0})});
  return lay_out(facts);
}

int64_t windows(int num_ranks, const Grid& grid, int rank) {
  const Topology topology = nodes_of_four(num_ranks);
  return planned_window_bytes(topology, lay_grid(topology, grid), rank);
}

TEST_CASE("the windows of a rank are those of its groups that are on one node") {
  const int64_t of_2 = shm_window_bytes(2), of_4 = shm_window_bytes(4);
  CHECK(of_2 > 3 << 20);
  CHECK(windows(4, {4, 1, 1}, 0) == 0);
  CHECK(windows(4, {2, 1, 2}, 3) == of_2);
  CHECK(windows(4, {1, 2, 2}, 1) == 2 * of_2);
  CHECK(windows(8, {1, 2, 4}, 6) == of_4);  // the two stages are on two nodes
  CHECK(windows(8, {1, 1, 8}, 0) == 0);
  // Two replicas of three on nodes of four: the second one crosses.
  CHECK(windows(6, {2, 1, 3}, 2) == shm_window_bytes(3));
  CHECK(windows(6, {2, 1, 3}, 3) == 0);
  CHECK(windows(6, {2, 1, 3}, 5) == 0);
}

}  // namespace
}  // namespace tokenmill::parallel
