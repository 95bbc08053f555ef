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

TEST_CASE("a limit on CPU time is divided among the ranks in its control group") {
  const auto limited = [](int node, std::vector<CpuLimit> limits, CpuSet set = cpus(0, 16)) {
    return RankFacts{"", node, std::move(set), {}, std::move(limits)};
  };
  const CpuLimit job{"job", 10.5}, task{"task", 2}, wide{"wide", 64};
  const Topology topology = lay_out({limited(0, {job}), limited(0, {task, job}), limited(0, {wide, job}),
                                     limited(3, {job, wide}), limited(4, {}), limited(5, {job}, cpus(0, 4))});
  CHECK(threads(topology) == std::vector<int>{3, 2, 3, 10, 16, 4});
  CHECK(topology.ranks[0].cpu_limit == 3.5);
  CHECK(topology.ranks[1].cpu_limit == 2.0);
  CHECK(topology.ranks[3].cpu_limit == 10.5);
  CHECK_FALSE(topology.ranks[4].cpu_limit);
  CHECK(threads(lay_out({limited(0, {{"small", 0.2}})})) == std::vector<int>{1});
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

/// Two packages of two cores each, a memory domain per package, as hwloc writes it.
const char* const kTwoSockets = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" allowed_cpuset="0x0000000f" nodeset="0x00000005" complete_nodeset="0x00000005" allowed_nodeset="0x00000005" gp_index="1">
    <object type="Package" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="2">
      <info name="CPUModel" value="Example 7 at 2 GHz"/>
      <object type="NUMANode" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3" local_memory="1073741824"/>
      <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4"/>
      <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="5"/>
    </object>
    <object type="Package" os_index="1" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000004" complete_nodeset="0x00000004" gp_index="6">
      <info name="CPUModel" value="Example 7 at 2 GHz"/>
      <object type="NUMANode" os_index="2" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000004" complete_nodeset="0x00000004" gp_index="7" local_memory="1073741824"/>
      <object type="PU" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000004" complete_nodeset="0x00000004" gp_index="8"/>
      <object type="PU" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000004" complete_nodeset="0x00000004" gp_index="9"/>
    </object>
  </object>
</topology>)";

TEST_CASE("a rank's CPUs lie in the memory domains of its node") {
  CHECK(place_of(cpus(0, 2), kTwoSockets) == CpuPlace{{0}, "Example 7 at 2 GHz"});
  CHECK(place_of(cpus(3, 1), kTwoSockets).numa_domains == std::vector<int>{2});
  CHECK(place_of(cpus(1, 2), kTwoSockets).numa_domains == std::vector<int>{0, 2});
  CHECK_THROWS_AS(place_of(cpus(0, 1), "no description"), Error);
  (void)place_of(CpuSet::of_this_process());  // this machine can be described
}

TEST_CASE("ranks are near each other on one node with the same memory domains") {
  const CpuSet any = cpus(0, 2);
  const Topology topology = lay_out({{"a", 0, any, {{0}}},
                                     {"a", 0, any, {{0}}},
                                     {"a", 0, any, {{1}}},
                                     {"a", 0, any, {{0, 1}}},  // a socket of two domains
                                     {"a", 0, any, {{0, 1}}},
                                     {"a", 0, any, {{2, 3}}},  // the other socket
                                     {"a", 0, any, {}},        // not known
                                     {"a", 0, any, {}},
                                     {"b", 8, any, {{0}}},
                                     {"b", 8, any, {}}});
  const std::vector<int> group{0, 0, 2, 3, 3, 5, 6, 6, 8, 9};
  for (int a = 0; a < 10; ++a)
    for (int b = 0; b < 10; ++b)
      CHECK(topology.are_near(a, b) == (group[static_cast<size_t>(a)] == group[static_cast<size_t>(b)]));
}

TEST_CASE("ranks that are planned fill nodes like this machine in turn") {
  const Topology topology = planned_topology(10, 4);
  const CpuSet here = CpuSet::of_this_process();
  CHECK(topology.num_nodes == 3);
  CHECK(topology.ranks[7].local_rank == 3);
  CHECK(topology.ranks[9].node == 2);
  for (const RankPlace& place : topology.ranks) {
    CHECK(place.host.empty());
    CHECK(place.cpus == here);
    CHECK(place.cpu_place == place_of(here));
  }
  CHECK(threads(topology)[9] >= threads(topology)[0]);  // two ranks share the last node
}

}  // namespace
}  // namespace tokenmill::parallel
