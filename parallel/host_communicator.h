#pragma once
#include <chrono>
#include <memory>
#include <vector>

#include "parallel/host_transport.h"
#include "parallel/link_costs.h"
#include "parallel/peer_watch.h"

namespace tokenmill::parallel {

/// Host tensors between the ranks of a group, by one transport or by the cheapest of several for each call. Which one
/// never shows in a result.
///
/// Starts and waits are host functions on the stream; on the CPU's stream they run at once. A recording may be replayed
/// when it holds the wait of each transfer it starts and nothing it waits for from outside, and when all ranks of the
/// group replay theirs, in one order with their other transfers. What was chosen when it was recorded stays.
class HostCommunicator final : public Communicator {
 public:
  /// Of group's ranks, at least two; transports and costs are equal on all of them, and watch is theirs. costs has as
  /// many routes as there are transports, or none (then the first transport carries all). stream and progress outlive
  /// this; all that uses progress runs on one thread.
  HostCommunicator(const Comm& group, Stream& stream, HostProgress& progress,
                   std::vector<std::unique_ptr<HostTransport>> transports, GroupCosts costs, PeerWatch watch);
  ~HostCommunicator() override;
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Stream& stream() override { return stream_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Started {
    Transfer transfer;
    TransferKind kind;
    HostTransport* transport;
    Clock::time_point since;  ///< its start had returned
    double start_s, alone_s;  ///< what the start took; what the whole costs alone
  };
  void do_exchange(Transfer transfer, TensorView received, TensorView sent) override;
  void do_all_gather(Transfer transfer, TensorView all, TensorView part) override;
  void do_broadcast(Transfer transfer, TensorView view, int root) override;
  void do_send(Transfer transfer, TensorView view, int to) override;
  void do_recv(Transfer transfer, TensorView view, int from) override;
  void do_wait(Transfer transfer) override;
  void enqueue(Transfer transfer, const Move& move);
  void start(Transfer transfer, const Move& move);
  void finish(Transfer transfer);

  int rank_, size_;
  Stream& stream_;
  HostProgress& progress_;
  std::vector<std::unique_ptr<HostTransport>> transports_;
  GroupCosts costs_;
  PeerWatch watch_;
  std::vector<Started> started_;
};

}  // namespace tokenmill::parallel
