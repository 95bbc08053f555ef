#include "engine/models/layer_costs.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/core/clock.h"

namespace tokenmill {
namespace {

constexpr int64_t kWidest = 4096;  // output features that are measured; more cost in proportion
constexpr int kRepeats = 3;

/// The fastest of some products with zero weights.
double measure_linear(Ops& ops, DType dtype, int64_t num_tokens, int64_t in_features, int64_t out_features) {
  const int64_t measured = std::min(out_features, kWidest);
  if (num_tokens == 0 || in_features == 0 || measured == 0) return 0;
  const LinearSpec spec{
      in_features, measured, dtype, {{WeightFormat::kBF16, measured, in_features, 0, measured, 0, in_features}}};
  const Buffer storage = ops.memory().allocate(ops.linear_bytes(spec));
  const std::unique_ptr<Linear> linear =
      ops.make_linear(spec, {static_cast<std::byte*>(storage.data()), static_cast<size_t>(storage.num_bytes())});
  linear->write(0, 0, std::vector<std::byte>(static_cast<size_t>(measured * in_features * 2)));
  linear->finish();
  const bool is_host = ops.device().kind == DeviceKind::kCpu;
  const Buffer x = ops.memory().allocate(num_tokens * in_features * dtype_size(dtype));
  const Buffer out = ops.memory().allocate(num_tokens * measured * dtype_size(dtype));
  const SteadyClock clock;
  double best_s = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepeats; ++i) {
    const double start_s = clock.now_s();
    ops.linear(TensorView(out.data(), dtype, {num_tokens, measured}, is_host),
               TensorView(x.data(), dtype, {num_tokens, in_features}, is_host), *linear);
    ops.stream().synchronize();
    best_s = std::min(best_s, clock.now_s() - start_s);
  }
  return best_s * static_cast<double>(out_features) / static_cast<double>(measured);
}

}  // namespace

double measure_layer_s(Ops& ops, const ModelConfig& c, const ModelGrid& grid, DType dtype, int64_t num_tokens) {
  const ModelShard first{.grid = grid, .layers = {0, c.num_layers}};
  const int64_t q = first.heads(c).size() * c.head_dim, kv = first.kv_heads(c).size() * c.head_dim;
  const int64_t intermediate = first.intermediate(c).size();
  const auto seconds = [&](int64_t in, int64_t out) { return measure_linear(ops, dtype, num_tokens, in, out); };
  return seconds(c.hidden_size, q + 2 * kv) + seconds(q, c.hidden_size) + seconds(c.hidden_size, 2 * intermediate) +
         seconds(intermediate, c.hidden_size);
}

LayerCosts measure_layer_costs(Ops& ops, const ModelConfig& c, const ModelGrid& grid, DType dtype, int64_t num_tokens) {
  const int64_t most_ids = (c.vocab_size + grid.tp_size - 1) / grid.tp_size;
  return {.layer = measure_layer_s(ops, c, grid, dtype, num_tokens),
          .embedding = 0,
          .head = measure_linear(ops, dtype, num_tokens, c.hidden_size, most_ids)};
}

int64_t sum_part_bytes(const ModelConfig& config, const ModelGrid& grid, int64_t num_tokens) {
  return num_tokens * config.hidden_size * 4 * (grid.num_parts() / grid.tp_size);
}

int64_t overlap_from(const parallel::GroupCosts& costs, const ModelConfig& config, const ModelGrid& grid,
                     const TurnCosts& turns, int64_t max_tokens) {
  // A clear gain or none: predictions within some percent of each other were noise when both ways were measured, and
  // two turns were up to 7 % slower then (README.md).
  constexpr double kLeastGain = 0.05, kMostHidden = 0.75;
  if (grid.tp_size == 1 || costs.routes.empty()) return max_tokens + 1;
  for (int64_t tokens = 32; tokens <= max_tokens; tokens *= 2) {
    const int64_t part_bytes = sum_part_bytes(config, grid, tokens);
    const size_t route = costs.route(parallel::TransferKind::kAllGather, part_bytes);
    if (costs.routes[route].name == "shm") continue;
    const parallel::LinkCosts& link = costs.routes[route].collective;
    const double begin_s = 2 * link.alpha_s;  // of a layer's sums; in two turns there are twice as many
    const double wire_s = 2 * link.beta_s_per_byte * static_cast<double>(part_bytes * (grid.tp_size - 1));
    const double products_s = turns.token_s ? *turns.token_s * static_cast<double>(tokens) : kMostHidden * wire_s;
    const double hidden_s = turns.hidden_share * std::min(kMostHidden * wire_s, products_s);
    if (hidden_s - turns.extra_s - begin_s >= kLeastGain * (products_s + begin_s + wire_s)) return tokens;
  }
  return max_tokens + 1;
}

}  // namespace tokenmill
