#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "parallel/mpi.h"

namespace tokenmill::parallel {

/// One message of bytes between two ranks of a communicator, under way while others and other work go on. Polled with
/// done(), which must have said true before the transfer is destroyed and before the bytes are used again. Messages
/// between the same two ranks with the same tag arrive in the order they were started.
class ByteTransfer {
 public:
  /// At most 1 GiB. comm outlives the transfer.
  static ByteTransfer send(const Comm& comm, std::span<const std::byte> bytes, int to, int tag);
  /// The message may be shorter than bytes.
  static ByteTransfer receive(const Comm& comm, std::span<std::byte> bytes, int from, int tag);

  ByteTransfer(ByteTransfer&& other) noexcept
      : request_(std::exchange(other.request_, MPI_REQUEST_NULL)), num_bytes_(other.num_bytes_) {}
  ByteTransfer& operator=(ByteTransfer&& other) noexcept {
    std::swap(request_, other.request_);
    std::swap(num_bytes_, other.num_bytes_);
    return *this;
  }
  ~ByteTransfer() = default;

  /// Whether it has ended; may be asked again.
  bool done();
  /// Tests with a BackOff until it has ended.
  void wait();
  /// Of the message, once it has ended.
  int64_t num_bytes() const { return num_bytes_; }

 private:
  ByteTransfer() = default;
  MPI_Request request_ = MPI_REQUEST_NULL;
  int64_t num_bytes_ = 0;
};

}  // namespace tokenmill::parallel
