#include "parallel/connect.h"

#include <algorithm>
#include <vector>

#include "kernels/core/log.h"
#include "parallel/host_communicator.h"
#include "parallel/measure_route.h"
#include "parallel/mpi_transport.h"
#ifdef TOKENMILL_CUDA
#include "parallel/nccl_communicator.h"
#endif
#include "parallel/self_communicator.h"
#include "parallel/shm_transport.h"

namespace tokenmill::parallel {
namespace {

bool on_one_node(const Comm& group) {
  const std::vector<int> sizes = gather_values(group, group.split_shared().size());
  return std::all_of(sizes.begin(), sizes.end(), [&](int size) { return size == group.size(); });
}

/// Nothing (on all ranks) when the memory cannot be had and need not.
std::unique_ptr<HostTransport> shared_memory(const Comm& group, Route route) {
  if (!on_one_node(group)) {
    if (route == Route::kShm)
      throw AgreedError(ErrorKind::kConfig, "shared memory between {} ranks that are not all on one node",
                        group.size());
    return nullptr;
  }
  try {
    return std::make_unique<ShmTransport>(group);
  } catch (const AgreedError& e) {
    if (route == Route::kShm) throw AgreedError(ErrorKind::kConfig, std::string(e.what()));
    if (group.rank() == 0) log::warning("{}; the ranks of this node use MPI messages instead", e.what());
    return nullptr;
  }
}

}  // namespace

Connection connect(const Comm& group, Stream& stream, HostProgress& progress, Route route) {
  if (group.size() == 1) return {.communicator = std::make_unique<SelfCommunicator>(stream), .costs = {}};
  std::vector<std::unique_ptr<HostTransport>> transports;
  if (route != Route::kMpi)
    if (auto shared = shared_memory(group, route)) transports.push_back(std::move(shared));
  if (route != Route::kShm) transports.push_back(std::make_unique<MpiTransport>(group));
  PeerWatch watch(group);
  const GroupCosts costs{.size = group.size(), .routes = measure_routes(group, transports, watch)};
  return {.communicator = std::make_unique<HostCommunicator>(group, stream, progress, std::move(transports), costs,
                                                             std::move(watch)),
          .costs = costs};
}

Connection connect(const Comm& group, Device device, Stream& stream, HostProgress& progress) {
  if (group.size() == 1 || device.kind == DeviceKind::kCpu) return connect(group, stream, progress);
#ifdef TOKENMILL_CUDA
  return {.communicator = std::make_unique<NcclCommunicator>(group, device, stream), .costs = {.size = group.size(), .routes = {}}};
#else
  throw AgreedError(ErrorKind::kInternal, "a group on {} in a build without CUDA", to_string(device));
#endif
}

int64_t planned_window_bytes(const Topology& topology, const std::vector<GridPlace>& places, int rank) {
  const GridPlace& here = places.at(static_cast<size_t>(rank));
  struct Group {
    int size = 0;
    bool is_on_one_node = true;
    int64_t bytes() const { return size > 1 && is_on_one_node ? shm_window_bytes(size) : 0; }
  } tp, pp;
  for (size_t other = 0; other < places.size(); ++other) {
    const GridPlace& there = places[other];
    if (there.dp_rank != here.dp_rank) continue;
    const bool is_near = topology.ranks[other].node == topology.ranks[static_cast<size_t>(rank)].node;
    const auto add_to = [&](Group& group) {
      ++group.size;
      group.is_on_one_node = group.is_on_one_node && is_near;
    };
    if (there.pp_rank == here.pp_rank) add_to(tp);
    if (there.tp_rank == here.tp_rank) add_to(pp);
  }
  return tp.bytes() + pp.bytes();
}

}  // namespace tokenmill::parallel
