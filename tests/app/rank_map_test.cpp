#include "app/rank_map.h"

#include <doctest/doctest.h>

#include <numeric>
#include <string>

namespace tokenmill::app {
namespace {

using Lines = std::vector<std::string>;

parallel::CpuSet cpus(int first, int count) {
  std::vector<int> list(static_cast<size_t>(count));
  std::iota(list.begin(), list.end(), first);
  return parallel::CpuSet(list);
}

/// Nodes of eight ranks; bound: each to a memory domain of 16 CPUs.
parallel::Topology nodes_of_eight(int num_ranks, bool is_bound) {
  std::vector<parallel::RankFacts> facts;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int local = rank % 8;
    parallel::RankFacts fact{"n" + std::to_string(rank / 8), rank - local, cpus(0, 128), {{0, 1, 2, 3, 4, 5, 6, 7}}};
    if (is_bound) {
      fact.cpus = cpus(16 * local, 16);
      fact.cpu_place.numa_domains = {local};
    }
    facts.push_back(fact);
  }
  return parallel::lay_out(facts);
}

Lines map_of(const parallel::Topology& topology, const parallel::Grid& grid, size_t max_lines = 64) {
  const std::vector<Range> stages = grid.pp == 1 ? std::vector<Range>{{0, 6}} : std::vector<Range>{{0, 5}, {5, 6}};
  return describe_map(topology, grid, stages, {"cpu", {}}, max_lines);
}

TEST_CASE("numbers are joined") { CHECK(describe_numbers({3, 1, 2, 7, 9, 8}) == "1-3, 7-9"); }

TEST_CASE("a rank's line says where it is, what it has and what it does") {
  parallel::RankFacts fact{"", 0, cpus(4, 1)};
  CHECK(map_of(parallel::lay_out({fact}), {1, 1, 1}) ==
        Lines{"rank 0: node 0, local rank 0, NUMA domain unknown, CPU 4, 1 thread, cpu; dp 0, pp 0, tp 0: layers 0-5"});
  fact = {"n", 0, cpus(0, 4), {{1}}, {{"g", 2.5}}};
  CHECK(map_of(parallel::lay_out({fact}), {1, 1, 1})[0].find("CPUs 0-3 (time of 2.5), 2 threads") != std::string::npos);
  CHECK(describe_map(parallel::lay_out({fact}), {1, 1, 1}, {{3, 4}}, {"cpu", 7}, 9)[0].ends_with(
      "7 threads, cpu; dp 0, pp 0, tp 0: layer 3"));
}

TEST_CASE("64 ranks in two stages are two lines, bound or not") {
  CHECK(map_of(nodes_of_eight(64, true), {16, 2, 2}) ==
        Lines{"ranks 0-1, 4-5, ..., 60-61: nodes 0-7 (n0 ... n7), local ranks 0-1, 4-5, NUMA domains 0-1, 4-5, "
              "CPUs 0-31, 64-95 (16 each), 16 threads, cpu; dp 0-15, pp 0, tp 0-1: layers 0-4",
              "ranks 2-3, 6-7, ..., 62-63: nodes 0-7 (n0 ... n7), local ranks 2-3, 6-7, NUMA domains 2-3, 6-7, "
              "CPUs 32-63, 96-127 (16 each), 16 threads, cpu; dp 0-15, pp 1, tp 0-1: layer 5"});
  CHECK(map_of(nodes_of_eight(64, false), {64, 1, 1}) ==
        Lines{"ranks 0-63: nodes 0-7 (n0 ... n7), local ranks 0-7, NUMA domains 0-7, CPUs 0-127, 16 threads, cpu; "
              "dp 0-63, pp 0, tp 0: layers 0-5"});
}

TEST_CASE("what does not go on alike has a line of its own") {
  parallel::Topology topology = nodes_of_eight(64, true);
  topology.ranks[21].num_threads = 3;
  const Lines lines = map_of(topology, {64, 1, 1});
  REQUIRE(lines.size() == 5);
  CHECK(lines[0].starts_with("ranks 0-15: nodes 0-1 (n0 ... n1), local ranks 0-7,"));
  CHECK(lines[1].starts_with("ranks 16-20: node 2 (n2), local ranks 0-4,"));
  CHECK(lines[2].starts_with("rank 21: node 2 (n2), local rank 5, NUMA domain 5, CPUs 80-95, 3 threads, cpu; dp 21,"));
  CHECK(map_of(topology, {64, 1, 1}, 1) == Lines{lines[0], "and 4 more lines"});
}

TEST_CASE("cyclic placement and groups across nodes") {
  std::vector<parallel::RankFacts> facts;
  for (int rank = 0; rank < 6; ++rank) facts.push_back({"", rank % 2, cpus(0, 3)});
  CHECK(map_of(parallel::lay_out(facts), {6, 1, 1}) ==
        Lines{"ranks 0, 2, ..., 5: nodes 0-1, local ranks 0-2, NUMA domain unknown, CPUs 0-2, 1 thread, cpu; dp 0-5, pp 0, tp 0: "
              "layers 0-5"});
  const Lines crossing = map_of(parallel::lay_out(facts), {3, 1, 2});
  REQUIRE(crossing.size() == 4);
  CHECK(crossing[0].starts_with("ranks 0, 2: node 0, local ranks 0-1,"));
  CHECK(crossing[1].starts_with("rank 4: node 0, local rank 2,"));
  CHECK(crossing[2].ends_with("dp 1, pp 0, tp 1: layers 0-5"));
}

}  // namespace
}  // namespace tokenmill::app
