#include "parallel/mpi_transport.h"

#include <algorithm>
#include <span>

#include "kernels/core/check.h"

namespace tokenmill::parallel {
namespace {

// Messages of one pair and tag stay in order, so a tag per family is enough: the ranks start collectives in one order
// and each pair its sends and receives in another.
constexpr int kCollectiveTag = 0;
constexpr int kPairTag = 1;

int tag_of(TransferKind kind) {
  return kind == TransferKind::kSend || kind == TransferKind::kRecv ? kPairTag : kCollectiveTag;
}

}  // namespace

MpiTransport::MpiTransport(const Comm& group, int64_t max_message_bytes)
    : comm_(group.duplicate()), max_message_bytes_(max_message_bytes) {
  TM_ASSERT(max_message_bytes >= 1 && max_message_bytes <= int64_t{1} << 30);
}

MpiTransport::~MpiTransport() {
  int finalized = 0;
  if (MPI_Finalized(&finalized) != MPI_SUCCESS || finalized) return;
  for (Pending& pending : pending_)
    for (MPI_Request& request : pending.requests)
      if (request != MPI_REQUEST_NULL) {
        MPI_Cancel(&request);
        MPI_Request_free(&request);
      }
}

void MpiTransport::start(Transfer transfer, const Move& move) {
  Pending& pending = pending_.add(transfer);
  pending.done = false;
  pending.requests.clear();
  pending.expected_bytes.clear();
  pending.peers.clear();
  const auto each_message = [&](int peer, auto&& post) {
    for (int64_t begin = 0; begin < move.part_bytes; begin += max_message_bytes_) {
      const int bytes = static_cast<int>(std::min(max_message_bytes_, move.part_bytes - begin));
      pending.requests.push_back(MPI_REQUEST_NULL);
      pending.peers.push_back(peer);
      pending.expected_bytes.push_back(post(begin, bytes, &pending.requests.back()));
    }
  };
  const int tag = tag_of(move.kind);
  const int here = comm_.rank();
  // Receives first: what arrives then finds its place. Rank r + 1 first, so that not all ranks send to rank 0 at once.
  for (int step = 1; step < comm_.size(); ++step) {
    const int from = (here - step + comm_.size()) % comm_.size();
    if (!move.receives_from(from, here)) continue;
    each_message(from, [&](int64_t begin, int bytes, MPI_Request* request) {
      TM_MPI(MPI_Irecv(move.received_from(from) + begin, bytes, MPI_BYTE, from, tag, comm_.handle(), request));
      return bytes;
    });
  }
  for (int step = 1; step < comm_.size(); ++step) {
    const int to = (here + step) % comm_.size();
    if (!move.sends_to(to, here)) continue;
    each_message(to, [&](int64_t begin, int bytes, MPI_Request* request) {
      TM_MPI(MPI_Isend(move.sent_to(to) + begin, bytes, MPI_BYTE, to, tag, comm_.handle(), request));
      return -1;
    });
  }
}

bool MpiTransport::test(Pending& pending) {
  const int n = static_cast<int>(pending.requests.size());
  statuses_.resize(std::max(statuses_.size(), pending.requests.size()));
  int done = 0;
  const int code = MPI_Testall(n, pending.requests.data(), &done, statuses_.data());
  if (code == MPI_ERR_IN_STATUS)
    for (const MPI_Status& status : std::span(statuses_).first(pending.requests.size()))
      if (status.MPI_ERROR != MPI_ERR_PENDING) TM_MPI(status.MPI_ERROR);
  TM_MPI(code);
  if (!done) return false;
  pending.done = true;
  for (size_t i = 0; i < pending.requests.size(); ++i) {
    if (pending.expected_bytes[i] < 0) continue;
    int bytes = 0;
    TM_MPI(MPI_Get_count(&statuses_[i], MPI_BYTE, &bytes));
    if (bytes != pending.expected_bytes[i])
      throw Error(ErrorKind::kInternal, "rank {} of {} waits for {} bytes of rank {}, which sent {}", comm_.rank(),
                  comm_.size(), pending.expected_bytes[i], pending.peers[i], bytes);
  }
  return true;
}

bool MpiTransport::progress() {
  bool moved = false;
  for (Pending& pending : pending_)
    if (pending.transfer != 0 && !pending.done) moved = test(pending) || moved;
  return moved;
}

bool MpiTransport::finished(Transfer transfer) {
  Pending& pending = pending_.at(transfer);
  if (!pending.done) return false;
  pending.transfer = 0;
  return true;
}

}  // namespace tokenmill::parallel
