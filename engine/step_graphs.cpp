#include "engine/step_graphs.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill {

void StepGraphs::record(const std::vector<int64_t>& sizes, const std::function<void(int64_t)>& work) {
  TM_ASSERT(graphs_.empty() && std::is_sorted(sizes.begin(), sizes.end()));
  if (sizes.empty()) return;
  const parallel::TransferCounts before = group_.counts();
  work(sizes.front());
  work(sizes.back());
  stream_.synchronize();
  for (const int64_t size : sizes) {
    const parallel::TransferCounts before_this = group_.counts();
    stream_.begin_capture();
    work(size);
    graphs_.push_back({.size = size, .recording = stream_.end_capture(), .transfers = group_.counts() - before_this});
  }
  group_.add_counts(group_.counts() - before, -1);
}

void StepGraphs::replay(Graph& graph) {
  stream_.replay(*graph.recording);
  group_.add_counts(graph.transfers);
  ++graph.num_steps;
}

StepGraphs::Graph* StepGraphs::find(int64_t count) {
  if (count == 0) return nullptr;
  const auto found = std::ranges::lower_bound(graphs_, count, {}, &Graph::size);
  return found == graphs_.end() ? nullptr : &*found;
}

std::vector<int64_t> graph_sizes(int64_t most) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size < most; size = size < 4 ? 2 * size : size < 8 ? 8 : size + (size < 256 ? 8 : 16))
    sizes.push_back(size);
  if (most > 0) sizes.push_back(most);
  return sizes;
}

}  // namespace tokenmill
