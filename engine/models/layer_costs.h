#pragma once
#include <cstdint>
#include <optional>

#include "engine/models/shard.h"
#include "kernels/ops.h"
#include "parallel/link_costs.h"

namespace tokenmill {

/// Seconds of this rank's share of a layer's products, and of the head's, for num_tokens tokens, measured on zero
/// weights of the model's shapes (wide ones are cut and scaled up). Tens of milliseconds. Looking up embeddings costs
/// next to nothing and counts as 0. Figures of one rank are to be used on all: those of others differ.
LayerCosts measure_layer_costs(Ops& ops, const ModelConfig& config, const ModelGrid& grid, DType dtype,
                               int64_t num_tokens);

/// The layer's seconds alone.
double measure_layer_s(Ops& ops, const ModelConfig& config, const ModelGrid& grid, DType dtype, int64_t num_tokens);

/// What it costs to compute a layer in two turns, and what that brings.
struct TurnCosts {
  /// A layer's products per token; nothing: not known, and taken to be what suits two turns best.
  std::optional<double> token_s;
  double extra_s = 0;       ///< more in two turns than in one: a layer's weights are read twice
  double hidden_share = 1;  ///< of a transfer goes on while products run (parallel::measure_hidden_share)
};

/// Bytes of a layer's sum for num_tokens tokens, from one rank to each other one.
int64_t sum_part_bytes(const ModelConfig& config, const ModelGrid& grid, int64_t num_tokens);

/// What Decoder::overlap_from() should be told: the fewest tokens of a step from which two turns save a twentieth of a
/// layer's time or more, at most max_tokens; max_tokens + 1 when they never do. They can hide up to three quarters of
/// what the layer's two sums take on a wire (the first turn of a sum runs beside the second one's short o_proj only),
/// no more than there is to compute, and of that the share that moves by itself. What a rank copies itself (shared
/// memory) is not hidden by its own products.
int64_t overlap_from(const parallel::GroupCosts& costs, const ModelConfig& config, const ModelGrid& grid,
                     const TurnCosts& turns, int64_t max_tokens);

}  // namespace tokenmill
