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

Stream::Event Communicator::exchange(TensorView received, TensorView sent) {
  check_contiguous("exchange", "received", received);
  check_contiguous("exchange", "sent", sent);
  bool same = received.rank() == sent.rank() && received.dtype() == sent.dtype() && sent.rank() >= 1;
  for (int i = 0; same && i < sent.rank(); ++i) same = received.size(i) == sent.size(i);
  if (!same || sent.size(0) != size())
    throw Error(ErrorKind::kInternal, "exchange: received {} and sent {} must be equal and have {} parts",
                received.describe(), sent.describe(), size());
  if (!sent.empty()) do_exchange(received, sent);
  return stream().record();
}

Stream::Event Communicator::all_gather(TensorView all, TensorView part) {
  check_contiguous("all_gather", "all", all);
  check_contiguous("all_gather", "part", part);
  bool same = all.rank() == part.rank() + 1 && all.dtype() == part.dtype() && all.size(0) == size();
  for (int i = 0; same && i < part.rank(); ++i) same = all.size(i + 1) == part.size(i);
  if (!same)
    throw Error(ErrorKind::kInternal, "all_gather: all {} must be {} times part {}", all.describe(), size(),
                part.describe());
  if (!part.empty()) do_all_gather(all, part);
  return stream().record();
}

Stream::Event Communicator::broadcast(TensorView view, int root) {
  check_contiguous("broadcast", "view", view);
  check_peer("broadcast", root, rank(), size(), /*may_be_self=*/true);
  if (!view.empty()) do_broadcast(view, root);
  return stream().record();
}

Stream::Event Communicator::send(TensorView view, int to) {
  check_contiguous("send", "view", view);
  check_peer("send", to, rank(), size(), /*may_be_self=*/false);
  if (!view.empty()) do_send(view, to);
  return stream().record();
}

Stream::Event Communicator::recv(TensorView view, int from) {
  check_contiguous("recv", "view", view);
  check_peer("recv", from, rank(), size(), /*may_be_self=*/false);
  if (!view.empty()) do_recv(view, from);
  return stream().record();
}

}  // namespace tokenmill::parallel
