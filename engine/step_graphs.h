#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/device/stream.h"
#include "parallel/communicator.h"

namespace tokenmill {

/// A part of a step's work on the device, recorded for some sizes and replayed for every step that fits one of them
/// (CUDA graphs). Everything else that varies from step to step lies in device memory at fixed addresses.
class StepGraphs {
 public:
  struct Graph {
    int64_t size;
    std::unique_ptr<Recording> recording;
    parallel::TransferCounts transfers;  ///< of each replay
    int64_t num_steps = 0;               ///< that have replayed it
  };

  /// group: through which the part exchanges tensors; both outlive this.
  StepGraphs(Stream& stream, parallel::Communicator& group) : stream_(stream), group_(group) {}
  /// work(size) enqueues the part for that size; it runs at the least and at the largest before anything is recorded,
  /// so that nothing has to be loaded or allocated while a recording is made. sizes ascend. Collective over the group,
  /// which has counted nothing of it afterwards.
  void record(const std::vector<int64_t>& sizes, const std::function<void(int64_t)>& work);
  /// The least that holds count; null when there is none, or nothing to do.
  Graph* find(int64_t count);
  void replay(Graph& graph);
  const std::vector<Graph>& graphs() const { return graphs_; }

 private:
  Stream& stream_;
  parallel::Communicator& group_;
  std::vector<Graph> graphs_;  // by ascending size
};

/// Sizes up to most: 1, 2, 4, then every 8th up to 256 and every 16th above, and most itself.
std::vector<int64_t> graph_sizes(int64_t most);

}  // namespace tokenmill
