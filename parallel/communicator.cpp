#include "parallel/communicator.h"

#include "kernels/core/error.h"

namespace tokenmill::parallel {
namespace {

void check_contiguous(const char* call, const char* name, TensorView view) {
  if (!view.contiguous())
    throw Error(ErrorKind::kInternal, "{}: {} {} has row stride {}; it must be contiguous", call, name, view.describe(),
                view.row_stride());
}

void check_peer(const char* call, int peer, int rank, int size, bool may_be_self) {
  if (peer < 0 || peer >= size || (peer == rank && !may_be_self))
    throw Error(ErrorKind::kInternal, "{}: rank {} is no peer of rank {} in a group of {}", call, peer, rank, size);
}

}  // namespace

const char* to_string(TransferKind kind) {
  switch (kind) {
    case TransferKind::kExchange:
      return "exchange";
    case TransferKind::kAllGather:
      return "all_gather";
    case TransferKind::kBroadcast:
      return "broadcast";
    case TransferKind::kSend:
      return "send";
    case TransferKind::kRecv:
      return "recv";
  }
  return "";
}

TransferCounts operator-(const TransferCounts& after, const TransferCounts& before) {
  TransferCounts out = after;
  for (size_t kind = 0; kind < out.size(); ++kind) {
    out[kind].calls -= before[kind].calls;
    out[kind].sent_bytes -= before[kind].sent_bytes;
    out[kind].received_bytes -= before[kind].received_bytes;
    out[kind].exposed_s -= before[kind].exposed_s;
    out[kind].hidden_s -= before[kind].hidden_s;
  }
  return out;
}

void Communicator::add_counts(const TransferCounts& transfers, int64_t times) {
  for (size_t kind = 0; kind < counts_.size(); ++kind) {
    const TransferCount& more = transfers[kind];
    TransferCount& total = counts_[kind];
    total.calls += times * more.calls;
    total.sent_bytes += times * more.sent_bytes;
    total.received_bytes += times * more.received_bytes;
    total.exposed_s += static_cast<double>(times) * more.exposed_s;
    total.hidden_s += static_cast<double>(times) * more.hidden_s;
  }
}

Communicator::Transfer Communicator::started(TransferKind kind, int64_t sent_bytes, int64_t received_bytes) {
  TransferCount& total = count(kind);
  ++total.calls;
  total.sent_bytes += sent_bytes;
  total.received_bytes += received_bytes;
  return last_;
}

Communicator::Transfer Communicator::exchange(TensorView received, TensorView sent) {
  check_contiguous("exchange", "received", received);
  check_contiguous("exchange", "sent", sent);
  bool same = received.rank() == sent.rank() && received.dtype() == sent.dtype() && sent.rank() >= 1;
  for (int i = 0; same && i < sent.rank(); ++i) same = received.size(i) == sent.size(i);
  if (!same || sent.size(0) != size())
    throw Error(ErrorKind::kInternal, "exchange: received {} and sent {} must be equal and have {} parts",
                received.describe(), sent.describe(), size());
  ++last_;
  if (!sent.empty()) do_exchange(last_, received, sent);
  const int64_t others = sent.num_bytes() / size() * (size() - 1);
  return started(TransferKind::kExchange, others, others);
}

Communicator::Transfer Communicator::all_gather(TensorView all, TensorView part) {
  check_contiguous("all_gather", "all", all);
  check_contiguous("all_gather", "part", part);
  bool same = all.rank() == part.rank() + 1 && all.dtype() == part.dtype() && all.size(0) == size();
  for (int i = 0; same && i < part.rank(); ++i) same = all.size(i + 1) == part.size(i);
  if (!same)
    throw Error(ErrorKind::kInternal, "all_gather: all {} must be {} times part {}", all.describe(), size(),
                part.describe());
  ++last_;
  if (!part.empty()) do_all_gather(last_, all, part);
  const int64_t others = part.num_bytes() * (size() - 1);
  return started(TransferKind::kAllGather, others, others);
}

Communicator::Transfer Communicator::broadcast(TensorView view, int root) {
  check_contiguous("broadcast", "view", view);
  check_peer("broadcast", root, rank(), size(), /*may_be_self=*/true);
  ++last_;
  if (!view.empty()) do_broadcast(last_, view, root);
  const int64_t bytes = view.num_bytes();
  return started(TransferKind::kBroadcast, rank() == root ? bytes * (size() - 1) : 0, rank() == root ? 0 : bytes);
}

Communicator::Transfer Communicator::send(TensorView view, int to) {
  check_contiguous("send", "view", view);
  check_peer("send", to, rank(), size(), /*may_be_self=*/false);
  ++last_;
  if (!view.empty()) do_send(last_, view, to);
  return started(TransferKind::kSend, view.num_bytes(), 0);
}

Communicator::Transfer Communicator::recv(TensorView view, int from) {
  check_contiguous("recv", "view", view);
  check_peer("recv", from, rank(), size(), /*may_be_self=*/false);
  ++last_;
  if (!view.empty()) do_recv(last_, view, from);
  return started(TransferKind::kRecv, 0, view.num_bytes());
}

void Communicator::wait(Transfer transfer) {
  if (transfer == 0 || transfer > last_)
    throw Error(ErrorKind::kInternal, "wait: transfer {} was never started; the last one is {}", transfer, last_);
  do_wait(transfer);
}

}  // namespace tokenmill::parallel
