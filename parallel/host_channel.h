#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "parallel/mpi.h"

namespace tokenmill::parallel {

/// One message of host bytes.
struct Frame {
  int from = 0;  ///< rank in the channel's communicator
  int type = 0;  ///< the sender's, 0..32767
  std::vector<std::byte> bytes;
};

/// Frames of host bytes between the ranks of a communicator, on a duplicate of it, so that they never meet other
/// traffic. Frames of one sender arrive in order. Sending never blocks; receiving polls, and waits with a BackOff and a
/// timeout, so that a waiting rank costs little CPU and a lost peer is an error, not a hang. One thread uses a channel
/// at a time; other threads may use MPI meanwhile.
class HostChannel {
 public:
  /// Collective over comm.
  explicit HostChannel(const Comm& comm);
  /// Frames still unsent then stay with MPI (their memory is not released); call flush() to know. Whoever uses the channel
  /// sees to it that every frame was received: MPI may give a later communicator this one's context, which then receives
  /// what was left.
  ~HostChannel();
  HostChannel(const HostChannel&) = delete;
  HostChannel& operator=(const HostChannel&) = delete;

  int rank() const { return comm_.rank(); }
  int size() const { return comm_.size(); }

  /// Copies bytes (at most 1 GiB) and starts the transfer.
  void send(int to, int type, std::span<const std::byte> bytes);
  /// The next frame that has arrived from anyone, if any. Also lets sends make progress.
  std::optional<Frame> poll();
  /// The next frame from one rank; throws Error(kMpi) naming `what` and the rank after timeout_s seconds.
  Frame receive(int from, double timeout_s, std::string_view what);
  /// True when everything sent so far has left; false after timeout_s seconds.
  bool flush(double timeout_s);

 private:
  struct Pending {
    MPI_Request request = MPI_REQUEST_NULL;
    std::vector<std::byte> bytes;
  };
  std::optional<Frame> try_receive(int from);
  void retire_sends();
  Comm comm_;
  std::deque<Pending> pending_;
};

}  // namespace tokenmill::parallel
