#pragma once
#include <array>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "parallel/host_transport.h"
#include "parallel/link_costs.h"
#include "parallel/mpi.h"
#include "parallel/peer_watch.h"

namespace tokenmill::parallel {

/// The fastest of some repeats of one thing, and whether more of them would tell more.
class FastestOf {
 public:
  void add(double seconds);
  /// Of one at least.
  double fastest_s() const { return fastest_s_[0]; }
  /// Three came within a tenth of the fastest: it is no stroke of luck, and what disturbs only makes slower.
  bool is_certain() const { return fastest_s_[2] <= 1.1 * fastest_s_[0]; }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  std::array<double, 3> fastest_s_{kNever, kNever, kNever};  // in order
};

/// Collective over group, of at least two ranks that all call at about the same time; watch is theirs. What each of the
/// transports costs: exchanges among all ranks, and messages to and fro between ranks 0 and 1, short and long ones, by
/// all transports in turn until the fastest of each is certain (FastestOf). A few milliseconds on a quiet machine, at
/// most about 64 on a busy one, longer where three repeats take longer. Equal on all ranks (rank 0's figures). Throws
/// Error(kMpi) when the process of a peer is gone.
std::vector<RouteCosts> measure_routes(const Comm& group, std::span<const std::unique_ptr<HostTransport>> transports,
                                       const PeerWatch& watch);

/// Collective over group, whose communicator it is, of ranks that all call at about the same time: how much of an
/// all_gather of parts of part_bytes goes on while the ranks compute for as long as it takes alone, 0 to 1. Nobody
/// calls the communicator meanwhile, as in a product: MPI moves only what the system or the network does by itself. By
/// the fastest of some repeats with and without computing; rank 0's figure on all ranks.
double measure_hidden_share(const Comm& group, Communicator& communicator, int64_t part_bytes);

}  // namespace tokenmill::parallel
