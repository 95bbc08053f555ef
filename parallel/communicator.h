#pragma once
#include <array>
#include <cstdint>

#include "kernels/core/tensor.h"
#include "kernels/device/stream.h"

namespace tokenmill::parallel {

enum class TransferKind : uint8_t { kExchange, kAllGather, kBroadcast, kSend, kRecv };
constexpr int kNumTransferKinds = 5;
/// "exchange", "all_gather", "broadcast", "send", "recv".
const char* to_string(TransferKind kind);

/// Of all transfers of one kind that a rank has taken part in. Calls and bytes are counted when the call is made (what
/// is recorded counts then, its replays by add_counts()), seconds when the stream gets to it.
struct TransferCount {
  int64_t calls = 0;
  int64_t sent_bytes = 0, received_bytes = 0;  ///< to and from other ranks, as the operation defines them
  /// The stream stood still for the transfer: inside its start (copying out) and its wait (copying in, and until the
  /// last peer came).
  double exposed_s = 0;
  /// What other work of the stream saved: the seconds that the transfer would take alone, by the costs measured at
  /// start-up, less the exposed ones; not below 0 and not above the time between start and wait. 0 where no costs are
  /// known.
  double hidden_s = 0;
};
using TransferCounts = std::array<TransferCount, kNumTransferKinds>;
/// What came after `before`.
TransferCounts operator-(const TransferCounts& after, const TransferCounts& before);

/// Moves tensors between the ranks of one group (tp, pp, ...). It never adds: a reduction is all_gather (short
/// messages) or exchange (long ones) of the parts, then Ops::sum_parts in rank order, so that a row's sum does not depend on the
/// message it travelled in. Ranks are positions in the group; no world rank appears here.
///
/// Every call checks its views (Error(kInternal) naming both sides of a mismatch) and starts a transfer behind the work
/// enqueued on stream() so far; the transfer may run beside work that is enqueued later. wait() puts its end in front
/// of what is enqueued behind it. Until then sent views must not be written and received ones not touched. Each
/// transfer is waited for exactly once, in any order. All ranks of the group start the same transfers in the same order
/// (send and recv: each pair of ranks). Views are contiguous, of any dtype; zero elements move nothing.
class Communicator {
 public:
  using Transfer = uint64_t;
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Stream& stream() = 0;

  /// received[r] = what rank r has in its sent[rank()]. Both [size, ...], equal in shape and dtype on all ranks;
  /// disjoint.
  Transfer exchange(TensorView received, TensorView sent);
  /// all[r] = rank r's part. part [n, cols] or [n], all [size, n, cols] or [size, n]; part may lie inside all at its
  /// place.
  Transfer all_gather(TensorView all, TensorView part);
  /// root's contents of view reach every rank.
  Transfer broadcast(TensorView view, int root);
  /// Matched by recv() on rank `to` (another rank) with an equal number of bytes.
  Transfer send(TensorView view, int to);
  Transfer recv(TensorView view, int from);
  void wait(Transfer transfer);

  /// By TransferKind.
  const TransferCounts& counts() const { return counts_; }
  /// Counts transfers that were replayed; times -1 takes back those that were recorded only.
  void add_counts(const TransferCounts& transfers, int64_t times = 1);

 protected:
  TransferCount& count(TransferKind kind) { return counts_[static_cast<size_t>(kind)]; }

 private:
  Transfer started(TransferKind kind, int64_t sent_bytes, int64_t received_bytes);
  // Start number `transfer`; not called for zero elements, but do_wait is.
  virtual void do_exchange(Transfer transfer, TensorView received, TensorView sent) = 0;
  virtual void do_all_gather(Transfer transfer, TensorView all, TensorView part) = 0;
  virtual void do_broadcast(Transfer transfer, TensorView view, int root) = 0;
  virtual void do_send(Transfer transfer, TensorView view, int to) = 0;
  virtual void do_recv(Transfer transfer, TensorView view, int from) = 0;
  /// Adds to the seconds of its kind.
  virtual void do_wait(Transfer transfer) = 0;

  TransferCounts counts_;
  Transfer last_ = 0;
};

}  // namespace tokenmill::parallel
