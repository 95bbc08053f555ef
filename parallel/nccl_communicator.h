#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device/cuda.h"
#include "kernels/device/device.h"
#include "parallel/communicator.h"
#include "parallel/mpi.h"
#include "parallel/peer_watch.h"

namespace tokenmill::parallel {

/// Tensors in device memory between the ranks of a group, by NCCL; it moves bytes and adds nothing.
///
/// Transfers run on a CUDA stream of their own, so that other work goes on beside them: a start waits on the device for
/// what stream() holds, a wait makes stream() wait on the device for the transfer. They run one after the other in the
/// order of their starts: sends and receives must not wait for each other in a circle of ranks (a pipeline's do not). A
/// capture of stream() takes transfers in when it holds their waits, too. Once as many transfers were under way as ever
/// are, nothing is allocated here. TransferCount's seconds stay 0: the host does not see when a transfer runs.
///
/// The NCCL communicator does not block: while stream() waits, and at the end of each wait, it is asked for errors and
/// the processes of this node for life (Stream::add_check), so that a rank never waits for ever for one that failed.
class NcclCommunicator final : public Communicator {
 public:
  /// Collective over group, of at least two ranks, each with a device of its own: NCCL's unique id travels by MPI.
  /// stream is a CUDA stream of device and outlives this. Throws AgreedError(kDevice) with NCCL's words when a rank cannot
  /// join, or when they have not all joined within kJoinSeconds.
  NcclCommunicator(const Comm& group, Device device, Stream& stream);
  /// Ends the communicator; aborts it when an exception unwinds or an error was found, since peers may be gone.
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Stream& stream() override { return stream_; }

  static constexpr double kJoinSeconds = 300;

 private:
  void do_exchange(Transfer transfer, TensorView received, TensorView sent) override;
  void do_all_gather(Transfer transfer, TensorView all, TensorView part) override;
  void do_broadcast(Transfer transfer, TensorView view, int root) override;
  void do_send(Transfer transfer, TensorView view, int to) override;
  void do_recv(Transfer transfer, TensorView view, int from) override;
  void do_wait(Transfer transfer) override;

  void join(const Comm& group);
  /// The result of a call on the communicator once it is no longer under way.
  ncclResult_t settled(ncclResult_t result, const char* call) const;
  /// Work enqueued on own_ from here on runs behind what stream() holds.
  void follow_stream();
  /// own_ holds the whole transfer.
  void started(Transfer transfer);
  /// Throws Error(kMpi) for a dead peer or what NCCL reports of another rank, Error(kDevice) for its other errors; an error of
  /// NCCL ends the communicator.
  void check();
  void abort();
  cudaEvent_t take_event();

  const int rank_, size_;
  const Device device_;
  Stream& stream_;
  PeerWatch watch_;
  std::string ranks_;  ///< "ranks 0, 1, 4 (world)": for messages
  const int exceptions_at_start_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t own_ = nullptr;
  cudaEvent_t ahead_ = nullptr;
  std::vector<std::pair<Transfer, cudaEvent_t>> under_way_;
  std::vector<cudaEvent_t> unused_;
  double looked_s_ = 0;
};

}  // namespace tokenmill::parallel
