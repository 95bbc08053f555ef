#include "parallel/groups.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

namespace tokenmill::parallel {
namespace {

/// node_of[r]: which node world rank r sits on.
Topology topology(const std::vector<int>& node_of) {
  std::vector<RankFacts> facts;
  for (size_t rank = 0; rank < node_of.size(); ++rank) {
    const auto root = std::find(node_of.begin(), node_of.end(), node_of[rank]) - node_of.begin();
    facts.push_back({"node" + std::to_string(node_of[rank]), static_cast<int>(root), CpuSet({0, 1})});
  }
  return lay_out(facts);
}

TEST_CASE("dp takes what tp and pp leave") {
  CHECK(resolve_grid({}, 8) == Grid{8, 1, 1});
  CHECK(resolve_grid({.dp = 0, .pp = 2, .tp = 2}, 8) == Grid{2, 2, 2});
  CHECK(resolve_grid({.dp = 2, .pp = 1, .tp = 3}, 6) == Grid{2, 1, 3});
}

std::string refusal(const Grid& asked, int num_ranks) {
  try {
    resolve_grid(asked, num_ranks);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("a grid that does not fit names the numbers and those that would work") {
  CHECK(
      refusal({.dp = 0, .pp = 1, .tp = 3}, 8) ==
      "--pipeline-parallel-size 1 x --tensor-parallel-size 3 = 3 ranks a replica, and there are 8: no whole number of "
      "replicas; start 6 or 9");
  CHECK(refusal({.dp = 0, .pp = 2, .tp = 2}, 1) ==
        "--pipeline-parallel-size 2 x --tensor-parallel-size 2 = 4 ranks a replica, and there is 1: no whole number of "
        "replicas; start 4");
  CHECK(refusal({.dp = 3, .pp = 1, .tp = 2}, 8) ==
        "--data-parallel-size 3 x --pipeline-parallel-size 1 x --tensor-parallel-size 2 = 6 ranks, and there are 8; "
        "start "
        "6 or leave --data-parallel-size out");
  CHECK(refusal({.dp = 2, .pp = 1, .tp = 3}, 8).ends_with("= 6 ranks, and there are 8; start 6"));
  CHECK(refusal({.dp = 1 << 20, .pp = 1 << 15, .tp = 1 << 15}, 8).find("= 1125899906842624 ranks") !=
        std::string::npos);
}

TEST_CASE("block placement: tp is fastest, then pp, then dp") {
  const auto places = lay_grid(topology({0, 0, 0, 0, 1, 1, 1, 1}), {2, 2, 2});
  CHECK(places[0] == GridPlace{0, 0, 0});
  CHECK(places[1] == GridPlace{0, 0, 1});
  CHECK(places[2] == GridPlace{0, 1, 0});
  CHECK(places[5] == GridPlace{1, 0, 1});
  CHECK(places[7] == GridPlace{1, 1, 1});
}

TEST_CASE("cyclic placement keeps tensor-parallel groups inside nodes") {
  const std::vector<int> node_of{0, 1, 0, 1, 0, 1, 0, 1};
  const auto places = lay_grid(topology(node_of), {2, 2, 2});
  for (size_t a = 0; a < 8; ++a)
    for (size_t b = 0; b < 8; ++b)
      if (std::tie(places[a].dp_rank, places[a].pp_rank) == std::tie(places[b].dp_rank, places[b].pp_rank))
        CHECK(node_of[a] == node_of[b]);
  CHECK(places[0] == GridPlace{0, 0, 0});
  CHECK(places[2] == GridPlace{0, 0, 1});
  CHECK(places[1] == GridPlace{1, 0, 0});
}

TEST_CASE("3 + 5 ranks on two hosts: every coordinate once, at most one group across the hosts") {
  for (const std::vector<int>& node_of : {std::vector<int>{0, 0, 0, 1, 1, 1, 1, 1}, {1, 0, 1, 1, 0, 1, 0, 1}}) {
    const auto places = lay_grid(topology(node_of), {4, 1, 2});
    std::set<std::tuple<int, int, int>> seen;
    int across = 0;
    for (size_t a = 0; a < 8; ++a) {
      seen.emplace(places[a].dp_rank, places[a].pp_rank, places[a].tp_rank);
      for (size_t b = a + 1; b < 8; ++b)
        if (places[a].dp_rank == places[b].dp_rank && node_of[a] != node_of[b]) ++across;
    }
    CHECK(seen.size() == 8);
    CHECK(across == 1);  // odd counts leave exactly one pair that must cross
  }
}

TEST_CASE("the order of ranks on a node does not depend on where the launcher put the others") {
  // The same two nodes, block and cyclic: position k of node n has the same coordinates.
  const auto block = topology({0, 0, 0, 1, 1, 1});
  const auto cyclic = topology({0, 1, 0, 1, 0, 1});
  const auto in_block = lay_grid(block, {2, 1, 3});
  const auto in_cyclic = lay_grid(cyclic, {2, 1, 3});
  for (size_t position = 0; position < 6; ++position)
    CHECK(in_block[static_cast<size_t>(block.ranks_by_node()[position])] ==
          in_cyclic[static_cast<size_t>(cyclic.ranks_by_node()[position])]);
}

}  // namespace
}  // namespace tokenmill::parallel
