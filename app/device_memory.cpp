#include "app/device_memory.h"

#include <algorithm>

namespace tokenmill::app {

int64_t measure_driver_bytes(const RunOptions& options, Replica& replica) {
  const RankPlan& plan = replica.plan;
  const Memory& memory = replica.ops->memory();
  RunnerLimits least = plan.limits;
  least.num_blocks.assign(least.num_blocks.size(), 1);
  ModelRunner trial(*replica.ops, *plan.model, replica.choice.dtype, least,
                    {.tp = replica.tp.communicator.get(), .pp = replica.pp.communicator.get()});
  trial.record_steps(1);  // without graphs, too: it makes libraries load what they need
  int64_t kv_bytes = 0;
  for (const int64_t block_bytes : plan.request.kv_block_bytes) kv_bytes += block_bytes;
  const int64_t in_use = (memory.total_bytes() - memory.free_bytes()) / plan.request.ranks_on_device;
  const int64_t planned = plan.memory.weight_bytes + plan.memory.activation_bytes + kv_bytes;
  const int64_t most = std::min(options.max_cudagraph_capture_size, plan.limits.max_num_batched_tokens);
  const int64_t num_graphs = options.enforce_eager ? 0 : std::ssize(graph_sizes(most));
  return std::max<int64_t>(0, in_use - planned + (num_graphs - 1) * trial.graph_figures().memory_bytes);
}

}  // namespace tokenmill::app
