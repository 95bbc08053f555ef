#pragma once
#include "parallel/communicator.h"

namespace tokenmill::parallel {

/// A group of one rank; needs no MPI. Exchange and all_gather are copies, broadcast does nothing; send and recv have no
/// peer and always throw Error(kInternal).
class SelfCommunicator final : public Communicator {
 public:
  /// stream outlives the communicator.
  explicit SelfCommunicator(Stream& stream) : stream_(stream) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Stream& stream() override { return stream_; }

 private:
  void do_exchange(Transfer, TensorView received, TensorView sent) override;
  void do_all_gather(Transfer, TensorView all, TensorView part) override;
  void do_broadcast(Transfer, TensorView view, int root) override;
  void do_send(Transfer, TensorView view, int to) override;
  void do_recv(Transfer, TensorView view, int from) override;
  void do_wait(Transfer) override {}
  Stream& stream_;
};

}  // namespace tokenmill::parallel
