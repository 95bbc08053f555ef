#include "parallel/byte_transfer.h"

#include "kernels/core/check.h"

namespace tokenmill::parallel {
namespace {

int count_of(size_t num_bytes) {
  TM_ASSERT(num_bytes <= size_t{1} << 30, "{} bytes in one message", num_bytes);
  return static_cast<int>(num_bytes);
}

}  // namespace

ByteTransfer ByteTransfer::send(const Comm& comm, std::span<const std::byte> bytes, int to, int tag) {
  ByteTransfer transfer;
  transfer.num_bytes_ = static_cast<int64_t>(bytes.size());
  TM_MPI(MPI_Isend(bytes.data(), count_of(bytes.size()), MPI_BYTE, to, tag, comm.handle(), &transfer.request_));
  return transfer;
}

ByteTransfer ByteTransfer::receive(const Comm& comm, std::span<std::byte> bytes, int from, int tag) {
  ByteTransfer transfer;
  transfer.num_bytes_ = -1;
  TM_MPI(MPI_Irecv(bytes.data(), count_of(bytes.size()), MPI_BYTE, from, tag, comm.handle(), &transfer.request_));
  return transfer;
}

bool ByteTransfer::done() {
  if (request_ == MPI_REQUEST_NULL) return true;
  int ended = 0;
  MPI_Status status;
  TM_MPI(MPI_Test(&request_, &ended, &status));
  if (!ended) return false;
  if (num_bytes_ < 0) {
    int count = 0;
    TM_MPI(MPI_Get_count(&status, MPI_BYTE, &count));
    num_bytes_ = count;
  }
  return true;
}

void ByteTransfer::wait() {
  for (BackOff back_off; !done();) back_off.pause();
}

}  // namespace tokenmill::parallel
