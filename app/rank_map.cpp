#include "app/rank_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tokenmill::app {
namespace {

std::string plural(const char* word, const std::vector<int>& numbers) {
  return fmt::format("{}{} {}", word, numbers.size() == 1 ? "" : "s", describe_numbers(numbers));
}

/// Of one node: replica -> stage -> world ranks.
using NodeMap = std::map<int, std::map<int, std::vector<int>>>;

std::string describe_node(const NodeMap& replicas, const std::vector<Range>& stages, bool of_one_rank) {
  std::string text;
  if (of_one_rank) {
    std::vector<int> numbers, ranks;
    for (const auto& [replica, by_stage] : replicas) {
      numbers.push_back(replica);
      ranks.push_back(by_stage.begin()->second.front());
    }
    return fmt::format("{} on {}", plural("replica", numbers), plural("rank", ranks));
  }
  for (const auto& [replica, by_stage] : replicas) {
    text += fmt::format("{}replica {}: ", text.empty() ? "" : "; ", replica);
    for (const auto& [stage, ranks] : by_stage)
      text += fmt::format("{}{} on {}", stage == by_stage.begin()->first ? "" : ", ",
                          describe_layers(stages.at(static_cast<size_t>(stage))), plural("rank", ranks));
  }
  return text;
}

}  // namespace

std::string describe_grid(const parallel::Topology& topology, const parallel::Grid& grid) {
  const auto count = [](auto n, const char* word) { return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s"); };
  std::string text = fmt::format("{} on {}, {}", count(topology.ranks.size(), "rank"),
                                 count(topology.num_nodes, "node"), count(grid.dp, "replica"));
  if (grid.pp > 1) text += fmt::format(" of {}", count(grid.pp, "stage"));
  if (grid.tp > 1) text += fmt::format(" of {}", count(grid.tp, "rank"));
  return text;
}

std::string describe_numbers(std::vector<int> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return parallel::describe_runs(numbers, ", ");
}

std::string describe_layers(const Range& layers) {
  if (layers.size() == 1) return fmt::format("layer {}", layers.begin);
  return fmt::format("layers {}-{}", layers.begin, layers.end - 1);
}

std::vector<std::string> describe_map(const parallel::Topology& topology, const parallel::Grid& grid,
                                      const std::vector<Range>& stages, size_t max_lines) {
  const std::vector<parallel::GridPlace> places = parallel::lay_grid(topology, grid);
  std::vector<NodeMap> nodes(static_cast<size_t>(topology.num_nodes));
  std::vector<std::string> hosts(nodes.size());
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const auto node = static_cast<size_t>(topology.ranks[rank].node);
    nodes[node][places[rank].dp_rank][places[rank].pp_rank].push_back(static_cast<int>(rank));
    hosts[node] = topology.ranks[rank].host;
  }
  std::vector<std::string> lines;
  for (size_t node = 0; node < nodes.size() && node < max_lines; ++node)
    lines.push_back(fmt::format("node {}{}: {}", node, hosts[node].empty() ? "" : fmt::format(" ({})", hosts[node]),
                                describe_node(nodes[node], stages, grid.pp * grid.tp == 1)));
  if (nodes.size() > max_lines)
    lines.push_back(
        fmt::format("and {} more node{}", nodes.size() - max_lines, nodes.size() - max_lines == 1 ? "" : "s"));
  return lines;
}

}  // namespace tokenmill::app
