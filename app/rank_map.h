#pragma once
#include <string>
#include <vector>

#include "engine/models/range.h"
#include "parallel/groups.h"
#include "parallel/topology.h"

namespace tokenmill::app {

/// "8 ranks on 2 nodes, 2 replicas of 2 stages of 2 ranks".
std::string describe_grid(const parallel::Topology& topology, const parallel::Grid& grid);

/// Who does what, a line a node, at most max_lines and then how many nodes are left out:
///     node 0 (gpu-01): replica 0: layers 0-14 on ranks 0-1, layers 15-29 on ranks 2-3; replica 1: ...
/// A host without a name is left out. Replicas of one rank are counted together: "replicas 0-3 on ranks 0-3".
std::vector<std::string> describe_map(const parallel::Topology& topology, const parallel::Grid& grid,
                                      const std::vector<Range>& stages, size_t max_lines);

/// "0-3, 8": ascending numbers.
std::string describe_numbers(std::vector<int> numbers);

/// "layers 0-14", "layer 3".
std::string describe_layers(const Range& layers);

}  // namespace tokenmill::app
