#pragma once
#include "kernels/core/tensor.h"
#include "kernels/device/stream.h"

namespace tokenmill::parallel {

/// Moves tensors between the ranks of one group (tp, pp, ...) in the order of one stream. It never adds: a reduction is
/// all_gather (short messages) or exchange (long ones) of the parts, then Ops::sum_parts in rank order, so that a row's
/// sum does not depend on the message it travelled in. Ranks are positions in the group; no world rank appears here.
///
/// Every call checks its views (Error(kInternal) naming both sides of a mismatch), enqueues on stream() and returns the
/// event after which the result may be read; the views' memory must live until then. All ranks of the group make the
/// same calls in the same order. Views are contiguous, of any dtype; zero elements move nothing.
class Communicator {
 public:
  using Event = Stream::Event;
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Stream& stream() = 0;

  /// received[r] = what rank r has in its sent[rank()]. Both [size, ...], equal in shape and dtype on all ranks;
  /// disjoint.
  Event exchange(TensorView received, TensorView sent);
  /// all[r] = rank r's part. part [n, cols] or [n], all [size, n, cols] or [size, n]; part may lie inside all at its
  /// place.
  Event all_gather(TensorView all, TensorView part);
  /// root's contents of view reach every rank.
  Event broadcast(TensorView view, int root);
  /// Matched by recv() on rank `to` (another rank) with an equal number of bytes.
  Event send(TensorView view, int to);
  Event recv(TensorView view, int from);

 private:
  virtual void do_exchange(TensorView received, TensorView sent) = 0;
  virtual void do_all_gather(TensorView all, TensorView part) = 0;
  virtual void do_broadcast(TensorView view, int root) = 0;
  virtual void do_send(TensorView view, int to) = 0;
  virtual void do_recv(TensorView view, int from) = 0;
};

}  // namespace tokenmill::parallel
