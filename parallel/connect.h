#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/device/device.h"
#include "parallel/communicator.h"
#include "parallel/groups.h"
#include "parallel/host_transport.h"
#include "parallel/link_costs.h"
#include "parallel/mpi.h"

namespace tokenmill::parallel {

enum class Route : uint8_t {
  kAuto,  ///< the cheaper one of MPI and shared memory for each call; MPI when the ranks are not all on one node
  kMpi,
  kShm,
};

struct Connection {
  std::unique_ptr<Communicator> communicator;
  GroupCosts costs;  ///< measured just now; for the cost model and run.yaml. Of NCCL no routes are known
};

/// Collective over group: a communicator for host tensors. A group of one rank needs no MPI (SelfCommunicator).
/// Measures what its routes cost (measure_routes: 15 ms for 2 ranks on 2 cores, 30 ms for 4) and takes rank 0's figures
/// on all ranks. The shared memory, size x shm_window_bytes(size), is a memfd of rank 0 that the others open through
/// /proc, not a file in /dev/shm (SharedMemory); where a rank cannot (limits on memory or files, another process
/// namespace) rank 0 warns with the system's reason and MPI carries all. stream and progress outlive the communicator;
/// all that uses progress runs on one thread. Throws AgreedError(kConfig) for kShm where it cannot be had, Error(kMpi)
/// when the process of a peer is gone.
Connection connect(const Comm& group, Stream& stream, HostProgress& progress, Route route = Route::kAuto);

/// Collective over group: a communicator for tensors of device, on its stream: the CPU's as above, a GPU's by NCCL
/// (NcclCommunicator; progress is not used, and no memory of the node is shared).
Connection connect(const Comm& group, Device device, Stream& stream, HostProgress& progress);

/// Pure: what connect() takes of the node's memory for a rank's groups, or would if memory can be shared: shm_window_bytes()
/// for its tensor- and its pipeline-parallel group, where all ranks of the group are on one node. places: lay_grid().
int64_t planned_window_bytes(const Topology& topology, const std::vector<GridPlace>& places, int rank);

}  // namespace tokenmill::parallel
