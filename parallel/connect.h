#pragma once
#include <memory>

#include "parallel/communicator.h"
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
  GroupCosts costs;  ///< measured just now; for the cost model and run.yaml
};

/// Collective over group: a communicator for host tensors. A group of one rank needs no MPI (SelfCommunicator).
/// Measures what its routes cost (tens of milliseconds for a few ranks) and takes rank 0's figures on all ranks;
/// where the ranks cannot have shm_window_bytes() of memory in common it warns and uses MPI. stream and progress outlive
/// the communicator; all that uses progress runs on one thread. Throws AgreedError(kConfig) for kShm where it cannot be had.
Connection connect(const Comm& group, Stream& stream, HostProgress& progress, Route route = Route::kAuto);

}  // namespace tokenmill::parallel
