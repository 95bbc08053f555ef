#include "app/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "engine/memory_plan.h"
namespace tokenmill::app {

ModelGrid model_grid(const RunOptions& options) {
  return {.tp_size = static_cast<int>(options.tensor_parallel_size),
          .pp_size = static_cast<int>(options.pipeline_parallel_size),
          .invariant_parts = static_cast<int>(options.tp_invariant)};
}

void check_layout(const RunOptions& options, const ModelConfig& config) {
  check_grid(model_grid(options), config, options.model);
}

LayerCosts costs_by_parameters(const ModelConfig& config) {
  const int64_t attention = (2 * config.num_heads + 2 * config.num_kv_heads) * config.head_dim;
  const auto hidden = static_cast<double>(config.hidden_size);
  return {.layer = hidden * static_cast<double>(attention + 3 * config.intermediate_size),
          .head = hidden * static_cast<double>(config.vocab_size)};
}

std::vector<Range> stages_of(const RunOptions& options, const ModelConfig& config, const LayerCosts& costs) {
  return balance_stages(config.num_layers, model_grid(options).pp_size, costs);
}

std::string describe_crossing(const RunOptions& options, const ModelConfig& config, const parallel::Topology& topology,
                              const parallel::Grid& grid) {
  const std::vector<parallel::GridPlace> places = parallel::lay_grid(topology, grid);
  std::map<std::pair<int, int>, std::map<int, int>> ranks_by_node;  // (dp, pp) -> node -> ranks
  for (size_t rank = 0; rank < places.size(); ++rank)
    ++ranks_by_node[{places[rank].dp_rank, places[rank].pp_rank}][topology.ranks[rank].node];
  int crossing = 0, most_remote = 0;
  for (const auto& [group, nodes] : ranks_by_node) {
    crossing += nodes.size() > 1;
    for (const auto& [node, ranks] : nodes) most_remote = std::max(most_remote, grid.tp - ranks);
  }
  if (crossing == 0) return "";
  // Two sums a layer, of parts in float32; long steps move a share of that (engine/models/README.md).
  const int64_t parts = model_grid(options).num_parts() / grid.tp;
  const int64_t bytes = int64_t{2} * most_remote * parts * config.hidden_size * 4;
  return fmt::format(
      "{} of {} tensor-parallel groups cross nodes: each token brings a rank up to {} from other nodes in each of the "
      "{} "
      "layers, and each layer waits for it twice; with as many ranks a node as a multiple of {} they would not cross",
      crossing, ranks_by_node.size(), format_bytes(bytes), config.num_layers, grid.tp);
}

ModelShard shard_at(const RunOptions& options, const parallel::GridPlace& place, const std::vector<Range>& stages) {
  ModelShard shard;
  shard.grid = model_grid(options);
  shard.tp_rank = place.tp_rank;
  shard.pp_rank = place.pp_rank;
  shard.layers = stages.at(static_cast<size_t>(place.pp_rank));
  return shard;
}

}  // namespace tokenmill::app
