#include "engine/step_graphs.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill {

void StepGraphs::record(Stream& stream, const std::vector<int64_t>& sizes, const std::function<void(int64_t)>& work) {
  TM_ASSERT(graphs_.empty() && std::is_sorted(sizes.begin(), sizes.end()));
  if (sizes.empty()) return;
  work(sizes.back());
  stream.synchronize();
  for (const int64_t size : sizes) {
    stream.begin_capture();
    work(size);
    graphs_.push_back({.size = size, .recording = stream.end_capture()});
  }
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
