// Who reads what for whom; rank_load.cpp does it.
#include "engine/models/loader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>

#include "engine/models/rank_load.h"
#include "kernels/core/check.h"
#include "kernels/core/log.h"
#include "parallel/peer_watch.h"
#include "parallel/shared_memory.h"

namespace tokenmill {
namespace {

/// A ring that other nodes fill too holds more chunks, so that more nodes can read at the same time.
constexpr int kMaxRelaySlots = 32;

/// The ring's memory where no other rank uses it.
class OwnMemory {
 public:
  explicit OwnMemory(int64_t num_bytes)
      : bytes_(new (std::align_val_t{64}) std::byte[static_cast<size_t>(num_bytes)]()), num_bytes_(num_bytes) {}
  std::span<std::byte> bytes() const { return {bytes_.get(), static_cast<size_t>(num_bytes_)}; }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte[], Free> bytes_;
  int64_t num_bytes_;
};

/// The union over the ranks of a communicator.
std::vector<TensorNeed> gather_needs(const parallel::Comm& comm, const std::vector<TensorNeed>& mine) {
  std::vector<TensorNeed> all;
  for (const std::string& bytes : parallel::gather_bytes(comm, to_bytes(mine))) {
    for (TensorNeed& need : needs_from_bytes(bytes)) all.push_back(std::move(need));
  }
  return merge_needs(all);
}

LoadStats run(const WeightPlan& plan, const NodePlan& node, const ChunkRing& ring, const LoadOptions& options) {
  RankLoad load(plan, node, options, ring);
  if (const std::optional<Error> error = load.run()) throw *error;
  return load.stats();
}

LoadStats load_alone(const WeightPlan& plan, const LoadOptions& options) {
  NodePlan node;
  node.load = make_load_plan(merge_needs(needs_of(plan)), options.reads);
  node.chunks = read_all(node.load);
  const ChunkRing::Shape shape = node.ring_shape(options.num_slots);
  const OwnMemory memory(shape.num_bytes());
  return run(plan, node, ChunkRing(memory.bytes(), shape), options);
}

/// Collective over the node. Waits for a process that is gone end by an Error(kMpi) that names it.
ChunkRing shared_ring(const parallel::SharedMemory& memory, const ChunkRing::Shape& shape, const parallel::Comm& node) {
  return {memory.bytes(), shape,
          [watch = parallel::PeerWatch(node)] { watch.check("a chunk of the model's weights"); }};
}

LoadStats load_on_node(const WeightPlan& plan, const std::vector<TensorNeed>& needs, const parallel::Comm& comm,
                       const LoadOptions& options) {
  NodePlan node;
  node.load = make_load_plan(gather_needs(comm, needs), options.reads);
  node.chunks = read_all(node.load);
  node.rank = comm.rank();
  node.num_ranks = comm.size();
  const ChunkRing::Shape shape = node.ring_shape(options.num_slots);
  parallel::SharedMemory memory;
  try {
    memory = parallel::SharedMemory(comm, shape.num_bytes());
  } catch (const parallel::AgreedError& error) {
    if (comm.rank() == 0) log::warning("every rank of this node reads the weights for itself: {}", error.what());
    return load_alone(plan, options);
  }
  return run(plan, node, shared_ring(memory, shape, comm), options);
}

/// Collective over the node: what rank 0 has learnt from the first ranks of the other nodes.
std::vector<std::vector<TensorNeed>> needs_by_node(const parallel::Comm& nodes, const parallel::Comm& node,
                                                   const std::vector<TensorNeed>& needs, int& node_index) {
  std::vector<std::string> all;
  if (node.rank() == 0) all = parallel::gather_bytes(nodes, to_bytes(needs));
  const std::array<int, 2> mine{nodes.rank(), nodes.size()};
  const std::array<int, 2> of_first = parallel::gather_values(node, mine)[0];
  node_index = of_first[0];
  all.resize(static_cast<size_t>(of_first[1]));
  std::vector<std::vector<TensorNeed>> result;
  for (std::string& bytes : all) {
    parallel::broadcast_bytes(node, bytes, 0);
    result.push_back(needs_from_bytes(bytes));
  }
  return result;
}

LoadStats load_on_job(const WeightPlan& plan, const std::vector<TensorNeed>& needs, const LoadGroup& group,
                      const LoadOptions& options) {
  const parallel::Comm nodes = group.job->split(group.node->rank() == 0 ? 0 : 1, group.job->rank());
  int node_index = 0;
  const auto by_node = needs_by_node(nodes, *group.node, gather_needs(*group.node, needs), node_index);
  const auto num_nodes = static_cast<int>(by_node.size());
  std::vector<TensorNeed> all;
  for (const std::vector<TensorNeed>& own : by_node) all.insert(all.end(), own.begin(), own.end());
  NodePlan node;
  node.load = make_load_plan(merge_needs(all), options.reads);
  node.chunks = plan_routes(node.load, by_node, node_index);
  node.rank = group.node->rank();
  node.num_ranks = group.node->size();
  node.nodes = &nodes;
  node.relays = true;
  const int slots = std::max(options.num_slots, std::min(2 * num_nodes, kMaxRelaySlots));
  const ChunkRing::Shape shape = node.ring_shape(slots);
  const parallel::SharedMemory memory =
      parallel::agree_on(*group.job, [&] { return parallel::SharedMemory(*group.node, shape.num_bytes()); });
  return run(plan, node, shared_ring(memory, shape, *group.node), options);
}

int64_t sum(const parallel::Comm& comm, int64_t value) {
  const std::vector<int64_t> all = parallel::gather_values(comm, value);
  return std::accumulate(all.begin(), all.end(), int64_t{0});
}

}  // namespace

LoadStats load_weights(const WeightPlan& plan, const LoadGroup& group, const LoadOptions& options) {
  TM_ASSERT((group.job == nullptr) == (group.node == nullptr) && options.num_slots > 0 && options.num_readers > 0);
  LoadStats stats;
  if (group.job == nullptr) {
    stats = load_alone(plan, options);
    stats.node_bytes_read = stats.job_bytes_read = stats.bytes_read;
    return stats;
  }
  const std::vector<TensorNeed> needs = parallel::agree_on(*group.job, [&] { return merge_needs(needs_of(plan)); });
  const std::optional<Error> failure = failure_of([&] {
    stats = options.mode == LoadMode::kBroadcast ? load_on_job(plan, needs, group, options)
                                                 : load_on_node(plan, needs, *group.node, options);
  });
  // Where ranks cannot talk to each other any more they cannot agree either.
  if (failure && failure->kind() == ErrorKind::kMpi) throw *failure;
  parallel::agree(*group.job, failure);
  stats.node_bytes_read = sum(*group.node, stats.bytes_read);
  stats.job_bytes_read = sum(*group.job, stats.bytes_read);
  return stats;
}

}  // namespace tokenmill
