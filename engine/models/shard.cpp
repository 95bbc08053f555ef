#include "engine/models/shard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "kernels/core/check.h"
#include "kernels/core/error.h"
#include "kernels/ops.h"

namespace tokenmill {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Piece i of n of [0, count), in units; the pieces differ by at most one unit.
Range piece(int64_t count, int64_t unit, int64_t i, int64_t n) {
  const int64_t units = (count + unit - 1) / unit;
  return {std::min(count, units * i / n * unit), std::min(count, units * (i + 1) / n * unit)};
}

/// Edges of shards fall on whole vectors and block formats' blocks where the size allows it.
int64_t intermediate_unit(const ModelConfig& config, int64_t num_parts) {
  for (const int64_t unit : {256, 64, 32, 16}) {
    if (config.intermediate_size % unit == 0 && config.intermediate_size / unit % num_parts == 0) return unit;
  }
  for (const int64_t unit : {64, 32, 16}) {
    if (config.intermediate_size % unit == 0 && config.intermediate_size / unit >= 4 * num_parts) return unit;
  }
  return 1;
}

std::vector<int64_t> tp_sizes_that_work(const ModelConfig& config) {
  std::vector<int64_t> sizes;
  for (int64_t tp = 1; tp <= config.num_heads; ++tp) {
    const bool kv = config.num_kv_heads % tp == 0 || tp % config.num_kv_heads == 0;
    if (config.num_heads % tp == 0 && kv && tp <= config.intermediate_size) sizes.push_back(tp);
  }
  return sizes;
}

}  // namespace

Range ModelShard::heads(const ModelConfig& config) const {
  return piece(config.num_heads, 1, tp_rank, grid.tp_size);
}

Range ModelShard::kv_heads(const ModelConfig& config) const {
  if (grid.tp_size <= config.num_kv_heads) return piece(config.num_kv_heads, 1, tp_rank, grid.tp_size);
  const int64_t head = tp_rank * config.num_kv_heads / grid.tp_size;
  return {head, head + 1};
}

Range ModelShard::part_heads(const ModelConfig& config, int i) const {
  return piece(config.num_heads, 1, tp_rank * num_parts() + i, grid.num_parts());
}

Range ModelShard::part_intermediate(const ModelConfig& config, int i) const {
  const int64_t unit = intermediate_unit(config, grid.num_parts());
  return piece(config.intermediate_size, unit, tp_rank * num_parts() + i, grid.num_parts());
}

Range ModelShard::intermediate(const ModelConfig& config) const {
  return {part_intermediate(config, 0).begin, part_intermediate(config, num_parts() - 1).end};
}

Range ModelShard::embedding_rows(const ModelConfig& config) const {
  return piece(config.vocab_size, 1, tp_rank, grid.tp_size);
}

Range ModelShard::vocabulary(const ModelConfig& config) const {
  const VocabShards shards{config.vocab_size, grid.tp_size};
  return {shards.first_id(tp_rank), shards.first_id(tp_rank + 1)};
}

ModelShard whole_model(const ModelConfig& config) {
  ModelShard shard;
  shard.layers = {0, config.num_layers};
  return shard;
}

void check_grid(const ModelGrid& grid, const ModelConfig& config, const std::string& where) {
  const std::vector<int64_t> sizes = tp_sizes_that_work(config);
  if (std::find(sizes.begin(), sizes.end(), grid.tp_size) == sizes.end())
    throw Error(ErrorKind::kConfig,
                "--tensor-parallel-size {} does not fit {} query heads and {} key/value heads ({}): it must divide the "
                "query heads, and divide the key/value heads or be a multiple of them; choose one of {}",
                grid.tp_size, config.num_heads, config.num_kv_heads, where, fmt::join(sizes, ", "));
  if (grid.pp_size > config.num_layers)
    throw Error(ErrorKind::kConfig,
                "--pipeline-parallel-size {} is more than the {} layers of {}; choose 1 to {}", grid.pp_size,
                config.num_layers, where, config.num_layers);
  if (grid.invariant_parts == 0) return;
  std::vector<int64_t> parts;
  for (const int64_t size : sizes) {
    if (size % grid.tp_size == 0) parts.push_back(size);
  }
  if (std::find(parts.begin(), parts.end(), grid.invariant_parts) == parts.end())
    throw Error(ErrorKind::kConfig,
                "--tp-invariant {} does not fit --tensor-parallel-size {} and {} query heads ({}): it is the largest "
                "tensor-parallel size that shall give the same bits; choose one of {}",
                grid.invariant_parts, grid.tp_size, config.num_heads, where, fmt::join(parts, ", "));
}

namespace {

/// The layers of each stage for which the sum of cost(stage, layers) is least; infinite costs are never taken. Among
/// equals later stages have fewer. best[s][n] is the least sum of the first s stages with n layers.
template <typename Cost>
std::vector<Range> cheapest_stages(int64_t num_layers, int pp_size, Cost&& cost) {
  const auto at = [](auto i) { return static_cast<size_t>(i); };
  std::vector<std::vector<double>> best(at(pp_size + 1), std::vector<double>(at(num_layers + 1), kNever));
  std::vector<std::vector<int64_t>> last(best.size(), std::vector<int64_t>(best[0].size(), 0));
  best[0][0] = 0;
  for (int s = 1; s <= pp_size; ++s) {
    for (int64_t n = s; n <= num_layers; ++n) {
      for (int64_t own = 1; own <= n - (s - 1); ++own) {
        const double sum = best[at(s - 1)][at(n - own)] + cost(s - 1, own);
        if (sum >= best[at(s)][at(n)]) continue;
        best[at(s)][at(n)] = sum;
        last[at(s)][at(n)] = own;
      }
    }
  }
  std::vector<Range> stages(at(pp_size));
  int64_t end = num_layers;
  for (int s = pp_size; s >= 1; --s) {
    const int64_t own = last[at(s)][at(end)];
    stages[at(s - 1)] = {end - own, end};
    end -= own;
  }
  return stages;
}

}  // namespace

std::vector<Range> balance_stages(int64_t num_layers, int pp_size, const LayerCosts& costs) {
  TM_ASSERT(pp_size >= 1 && num_layers >= pp_size, "{} stages of {} layers", pp_size, num_layers);
  const auto cost = [&](int stage, int64_t layers) {
    return static_cast<double>(layers) * costs.layer + (stage == 0 ? costs.embedding : 0) +
           (stage + 1 == pp_size ? costs.head : 0);
  };
  // The slowest stage decides: the lowest bound that all can keep.
  const auto fits = [&](double bound) {
    int64_t layers = 0;
    for (int s = 0; s < pp_size; ++s) {
      int64_t own = 0;
      while (own < num_layers && cost(s, own + 1) <= bound) ++own;
      if (own == 0) return false;
      layers += own;
    }
    return layers >= num_layers;
  };
  double bound = kNever;
  for (int s = 0; s < pp_size; ++s) {
    for (int64_t layers = 1; layers <= num_layers; ++layers) {
      if (cost(s, layers) < bound && fits(cost(s, layers))) bound = cost(s, layers);
    }
  }
  // Of the layouts that keep it, the most even one.
  return cheapest_stages(num_layers, pp_size, [&](int stage, int64_t layers) {
    const double c = cost(stage, layers);
    return c <= bound ? c * c : kNever;
  });
}

}  // namespace tokenmill
