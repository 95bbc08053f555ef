#pragma once
#include "parallel/host_transport.h"
#include "parallel/link_costs.h"
#include "parallel/mpi.h"

namespace tokenmill::parallel {

/// Collective over group, of at least two ranks that all call at about the same time: times exchanges among all ranks
/// and a message to and fro between ranks 0 and 1, short and long ones, the median of some each. Takes about 16 ms,
/// longer where one repeat does. Equal on all ranks (rank 0's figures).
RouteCosts measure_route(const Comm& group, HostTransport& transport, const char* name);

}  // namespace tokenmill::parallel
