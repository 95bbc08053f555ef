#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/replica.h"
#include "parallel/host_channel.h"
#include "parallel/host_transport.h"
#include "parallel/peer_watch.h"

namespace tokenmill::app {

/// Host bytes between the step loops of a replica's ranks. One thread uses it, the one that runs the steps.
class ReplicaLink {
 public:
  /// Collective over the ranks of the replica. progress: what this rank's tensors move by; outlives the link.
  ReplicaLink(const parallel::Comm& replica, parallel::HostProgress& progress);

  int size() const { return channel_.size(); }
  void send(int to, std::span<const std::byte> bytes) { channel_.send(to, 0, bytes); }
  /// The next bytes for this rank, whoever sends them; waits for as long as it takes, because a leader without rows
  /// sends nothing. Tensors move meanwhile: a peer may wait for one of ours before it can send. Spins and yields for
  /// the milliseconds that a leader needs between two steps, then sleeps, longer and longer: half a minute's wait costs
  /// a thousandth of a core. Throws Error(kMpi) when the process of a peer is gone.
  std::vector<std::byte> receive(const char* what);
  /// Returns when all that was sent has left. Throws Error(kMpi) after a minute.
  void flush();
  double waited_s() const { return waited_s_; }  ///< in receive()

 private:
  parallel::HostChannel channel_;
  parallel::HostProgress& progress_;
  parallel::PeerWatch watch_;
  double waited_s_ = 0;
  uint64_t num_received_ = 0;
};

/// Plans, from the leader (rank 0 of the link) to each of the others: a message of its own to everyone, since a replica
/// has few ranks.
class MpiPlanChannel final : public PlanChannel {
 public:
  explicit MpiPlanChannel(ReplicaLink& link) : link_(link) {}
  void send(std::span<const std::byte> bytes) override;
  std::vector<std::byte> receive() override { return link_.receive("a plan"); }

 private:
  ReplicaLink& link_;
};

/// Results, to the leader.
class MpiResultChannel final : public ResultChannel {
 public:
  explicit MpiResultChannel(ReplicaLink& link) : link_(link) {}
  void send(std::span<const std::byte> bytes) override { link_.send(0, bytes); }
  std::vector<std::byte> receive() override { return link_.receive("a step's results"); }

 private:
  ReplicaLink& link_;
};

}  // namespace tokenmill::app
