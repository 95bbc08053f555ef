#include "parallel/topology.h"

#include <doctest/doctest.h>

#include <numeric>

namespace tokenmill::parallel {
namespace {

CpuSet cpus(int first, int count) {
  std::vector<int> list(static_cast<size_t>(count));
  std::iota(list.begin(), list.end(), first);
  return CpuSet(list);
}

std::vector<int> threads(const Topology& topology) {
  std::vector<int> result;
  for (const RankPlace& place : topology.ranks) result.push_back(place.num_threads);
  return result;
}

TEST_CASE("a CPU set knows its members and prints ranges") {
  const CpuSet set({0, 1, 2, 3, 8, 127, 128});
  CHECK(set.count() == 7);
  CHECK(set.contains(127));
  CHECK_FALSE(set.contains(126));
  CHECK_FALSE(set.contains(5000));
  CHECK(set.describe() == "0-3,8,127-128");
  CHECK(set.cpus() == std::vector<int>{0, 1, 2, 3, 8, 127, 128});
  CHECK(CpuSet({5}) == CpuSet({5}));
  CHECK_FALSE(CpuSet({5}) == CpuSet({6}));
}

TEST_CASE("this process may run on at least one CPU") { CHECK(CpuSet::of_this_process().count() >= 1); }

TEST_CASE("ranks bound to a core each have one thread") {
  CHECK(threads(lay_out({{"a", 0, cpus(0, 1)}, {"a", 0, cpus(1, 1)}})) == std::vector<int>{1, 1});
}

TEST_CASE("unbound ranks share their node, not the other's") {
  const Topology topology =
      lay_out({{"a", 0, cpus(0, 16)}, {"b", 1, cpus(0, 16)}, {"a", 0, cpus(0, 16)}, {"a", 0, cpus(0, 16)}});
  CHECK(threads(topology) == std::vector<int>{5, 16, 5, 5});
}

TEST_CASE("ranks bound to sockets share their socket; more ranks than CPUs still have a thread") {
  const Topology sockets =
      lay_out({{"a", 0, cpus(0, 8)}, {"a", 0, cpus(8, 8)}, {"a", 0, cpus(0, 8)}, {"a", 0, cpus(8, 8)}});
  CHECK(threads(sockets) == std::vector<int>{4, 4, 4, 4});
  CHECK(threads(lay_out({{"a", 0, cpus(0, 1)}, {"a", 0, cpus(0, 1)}, {"a", 0, cpus(0, 1)}})) ==
        std::vector<int>{1, 1, 1});
}

TEST_CASE("masks that overlap in part divide only what they share") {
  // rank 0 has CPUs 0-3, rank 1 only 0-1: CPUs 0 and 1 count half for both.
  CHECK(threads(lay_out({{"a", 0, cpus(0, 4)}, {"a", 0, cpus(0, 2)}})) == std::vector<int>{3, 1});
}

TEST_CASE("thirds of a CPU add up to whole CPUs") {
  CHECK(threads(lay_out({{"a", 0, cpus(0, 96)}, {"a", 0, cpus(0, 96)}, {"a", 0, cpus(0, 96)}})) ==
        std::vector<int>{32, 32, 32});
}

TEST_CASE("3 + 5 ranks on two hosts get nodes by lowest rank and local ranks by world rank") {
  std::vector<RankFacts> facts;
  for (int rank = 0; rank < 8; ++rank) {
    const bool on_a = rank == 1 || rank == 4 || rank == 6;
    facts.push_back({on_a ? "a" : "b", on_a ? 1 : 0, cpus(0, 30)});
  }
  const Topology topology = lay_out(facts);
  CHECK(topology.num_nodes == 2);
  CHECK(topology.ranks[0].node == 0);  // world rank 0's node comes first, whatever its name
  CHECK(topology.ranks[1].node == 1);
  CHECK(topology.ranks[6].local_rank == 2);
  CHECK(topology.ranks[7].local_rank == 4);
  CHECK(topology.ranks_by_node() == std::vector<int>{0, 2, 3, 5, 7, 1, 4, 6});
  CHECK(threads(topology) == std::vector<int>{6, 10, 6, 6, 10, 6, 10, 6});
}

}  // namespace
}  // namespace tokenmill::parallel
