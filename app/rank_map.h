#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/models/range.h"
#include "parallel/groups.h"
#include "parallel/topology.h"

namespace tokenmill::app {

/// "8 ranks on 2 nodes, 2 replicas of 2 stages of 2 ranks".
std::string describe_grid(const parallel::Topology& topology, const parallel::Grid& grid);

/// What ranks compute with.
struct RankDevices {
  std::string device;              ///< "cpu"
  std::optional<int64_t> threads;  ///< --threads
};

/// Where each rank is and what it does:
///     rank 0: node 0 (n1), local rank 0, NUMA domain 0, CPUs 0-15, 16 threads, cpu; dp 0, pp 0, tp 0: layers 0-14
/// Ranks of one stage whose numbers go on alike from rank to rank, replica to replica and node to node are one line, with
/// its ranks node by node:
///     ranks 0-1, 4-5, ..., 60-61: nodes 0-7 (n1 ... n8), local ranks 0-1, 4-5, NUMA domains 0-1, 4-5, CPUs 0-31, 64-95
///     (16 each), 16 threads, cpu; dp 0-15, pp 0, tp 0-1: layers 0-14
/// At most max_lines, then how many are left out. A host without a name is left out.
std::vector<std::string> describe_map(const parallel::Topology& topology, const parallel::Grid& grid,
                                      const std::vector<Range>& stages, const RankDevices& devices, size_t max_lines);

/// "0-3, 8": ascending numbers.
std::string describe_numbers(std::vector<int> numbers);

/// "layers 0-14", "layer 3".
std::string describe_layers(const Range& layers);

}  // namespace tokenmill::app
