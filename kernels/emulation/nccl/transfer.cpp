#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "kernels/emulation/nccl/communicator.h"

namespace tokenmill::emulation {
namespace {

/// A transfer and how far it is.
struct Progress {
  Transfer transfer;
  size_t done = 0;
  bool finished() const { return done == transfer.num_bytes; }
  char* next() const { return static_cast<char*>(transfer.data) + done; }
};

void send_piece(Box& box, Progress& progress) {
  if (box.full != 0) return;
  box.num_bytes = static_cast<uint32_t>(std::min(kBoxBytes, progress.transfer.num_bytes - progress.done));
  box.message_bytes = progress.transfer.num_bytes;
  std::memcpy(box.data, progress.next(), box.num_bytes);
  progress.done += box.num_bytes;
  box.full = 1;
}

Status receive_piece(Box& box, Progress& progress) {
  if (box.full == 0) return {};
  if (box.message_bytes != progress.transfer.num_bytes) {
    return {cudaErrorLaunchFailure, fmt::format("rank {} sends {} bytes where {} are received", progress.transfer.peer,
                                                box.message_bytes, progress.transfer.num_bytes)};
  }
  std::memcpy(progress.next(), box.data, box.num_bytes);
  progress.done += box.num_bytes;
  box.full = 0;
  return {};
}

/// One look at every transfer whose turn it is; left tells whether any is unfinished.
Status look_at_all(Meeting& meeting, std::vector<Progress>& all, bool& left) {
  std::set<std::pair<int, bool>> waiting;  // peers and directions that an earlier transfer still uses
  for (Progress& progress : all) {
    if (progress.finished()) continue;
    const auto [is_send, data, num_bytes, peer] = progress.transfer;
    if (!waiting.insert({peer, is_send}).second) continue;
    if (is_send) {
      send_piece(meeting.region().boxes[meeting.rank()][peer], progress);
    } else if (Status status = receive_piece(meeting.region().boxes[peer][meeting.rank()], progress);
               status.code != cudaSuccess) {
      return status;
    }
  }
  left = !waiting.empty();
  return {};
}

}  // namespace

Status run_transfers(Communicator& communicator, std::vector<Transfer> transfers) {
  if (communicator.async_error != ncclSuccess) return {};
  Meeting& meeting = *communicator.meeting;
  std::vector<Progress> all;
  for (const Transfer& transfer : transfers) {
    if (!in_device_memory(transfer.data, transfer.num_bytes)) {
      meeting.abort();
      return {cudaErrorIllegalAddress,
              fmt::format("{} bytes at {} are not in device memory", transfer.num_bytes, transfer.data)};
    }
    all.push_back({transfer});
  }
  Status status;
  const bool complete = meeting.wait_until([&] {
    bool left = false;
    status = look_at_all(meeting, all, left);
    return !left || status.code != cudaSuccess;
  });
  if (!complete) communicator.async_error = ncclRemoteError;
  if (status.code != cudaSuccess) communicator.async_error = ncclInvalidUsage;
  return status;
}

}  // namespace tokenmill::emulation
