#pragma once
#include <string>
#include <vector>

#include "app/options.h"
#include "engine/models/shard.h"
#include "parallel/groups.h"
#include "parallel/topology.h"

namespace tokenmill::app {

/// The model's part of the asked layout.
ModelGrid model_grid(const RunOptions& options);

/// Throws Error(kConfig) naming option, numbers and values that would work when the model cannot be spread as asked.
/// Before any weight is read.
void check_layout(const RunOptions& options, const ModelConfig& config);

/// What a step spends on the parts of a model, by their parameters: steps of few tokens read every weight once.
LayerCosts costs_by_parameters(const ModelConfig& config);

/// The layers of each pipeline stage. costs: the same on every rank.
std::vector<Range> stages_of(const RunOptions& options, const ModelConfig& config, const LayerCosts& costs);

/// The tensor-parallel groups that do not fit on one node, and what they cost: one sentence for a warning, empty when
/// there are none.
std::string describe_crossing(const RunOptions& options, const ModelConfig& config, const parallel::Topology& topology,
                              const parallel::Grid& grid);

/// What the rank at `place` of a replica holds.
ModelShard shard_at(const RunOptions& options, const parallel::GridPlace& place, const std::vector<Range>& stages);

}  // namespace tokenmill::app
