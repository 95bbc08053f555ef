#pragma once
#include <cstdint>

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

/// What Decoder::overlap_from() should be told: the fewest tokens of a step from which two turns pay, at most
/// max_tokens; max_tokens + 1 when they never do. Two turns read a layer's weights twice, extra_s more in all; they
/// hide up to three quarters of what the layer's two sums take on a wire. What a rank copies itself (shared memory) is
/// not hidden by its own products.
int64_t overlap_from(const parallel::GroupCosts& costs, const ModelConfig& config, const ModelGrid& grid,
                     double extra_s, int64_t max_tokens);

}  // namespace tokenmill
