#include "parallel/host_communicator.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/check.h"

namespace tokenmill::parallel {
namespace {

std::byte* data(TensorView view) {
  TM_ASSERT(view.is_host(), "{} is not in host memory", view.describe());
  return static_cast<std::byte*>(view.data());
}

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

HostCommunicator::HostCommunicator(const Comm& group, Stream& stream, HostProgress& progress,
                                   std::vector<std::unique_ptr<HostTransport>> transports, GroupCosts costs,
                                   PeerWatch watch)
    : rank_(group.rank()),
      size_(group.size()),
      stream_(stream),
      progress_(progress),
      transports_(std::move(transports)),
      costs_(std::move(costs)),
      watch_(std::move(watch)) {
  TM_ASSERT(size_ >= 2 && !transports_.empty());
  TM_ASSERT(costs_.routes.empty() || costs_.routes.size() == transports_.size());
  for (const auto& transport : transports_) progress_.add(*transport);
}

HostCommunicator::~HostCommunicator() {
  for (const auto& transport : transports_) progress_.remove(*transport);
}

void HostCommunicator::do_exchange(Transfer transfer, TensorView received, TensorView sent) {
  enqueue(transfer, {.kind = TransferKind::kExchange,
                     .received = data(received),
                     .sent = data(sent),
                     .part_bytes = sent.num_bytes() / size_});
}

void HostCommunicator::do_all_gather(Transfer transfer, TensorView all, TensorView part) {
  enqueue(transfer,
          {.kind = TransferKind::kAllGather, .received = data(all), .sent = data(part), .part_bytes = part.num_bytes()});
}

void HostCommunicator::do_broadcast(Transfer transfer, TensorView view, int root) {
  enqueue(transfer, {.kind = TransferKind::kBroadcast,
                     .received = data(view),
                     .sent = data(view),
                     .part_bytes = view.num_bytes(),
                     .peer = root});
}

void HostCommunicator::do_send(Transfer transfer, TensorView view, int to) {
  enqueue(transfer, {.kind = TransferKind::kSend, .sent = data(view), .part_bytes = view.num_bytes(), .peer = to});
}

void HostCommunicator::do_recv(Transfer transfer, TensorView view, int from) {
  enqueue(transfer, {.kind = TransferKind::kRecv, .received = data(view), .part_bytes = view.num_bytes(), .peer = from});
}

void HostCommunicator::do_wait(Transfer transfer) {
  stream_.enqueue([this, transfer] { finish(transfer); });
}

void HostCommunicator::enqueue(Transfer transfer, const Move& move) {
  stream_.enqueue([this, transfer, move] { start(transfer, move); });
}

void HostCommunicator::start(Transfer transfer, const Move& move) {
  const auto begin = Clock::now();
  HostTransport& transport = *transports_[costs_.route(move.kind, move.part_bytes)];
  transport.start(transfer, move);
  if (move.kind == TransferKind::kExchange || move.kind == TransferKind::kAllGather) {  // this rank's own part
    std::byte* to = move.received_from(rank_);
    const std::byte* from = move.sent_to(rank_);
    if (to != from) std::memcpy(to, from, static_cast<size_t>(move.part_bytes));
  }
  const auto end = Clock::now();
  started_.push_back({.transfer = transfer,
                      .kind = move.kind,
                      .transport = &transport,
                      .since = end,
                      .start_s = seconds_between(begin, end),
                      .alone_s = costs_.seconds(move.kind, move.part_bytes)});
}

void HostCommunicator::finish(Transfer transfer) {
  const auto entry =
      std::find_if(started_.begin(), started_.end(), [&](const Started& s) { return s.transfer == transfer; });
  if (entry == started_.end()) return;  // zero elements
  const Started started = *entry;
  started_.erase(entry);
  const auto begin = Clock::now();
  const HostProgress::Wait waits(progress_, to_string(started.kind), transfer);
  for (PeerWait wait(watch_, to_string(started.kind)); !started.transport->finished(transfer);) {
    if (progress_.progress())
      wait.reset();
    else
      wait.pause();
  }
  const double between_s = seconds_between(started.since, begin);
  const double exposed_s = started.start_s + seconds_between(begin, Clock::now());
  TransferCount& total = count(started.kind);
  total.exposed_s += exposed_s;
  total.hidden_s += std::clamp(started.alone_s - exposed_s, 0.0, between_s);
}

}  // namespace tokenmill::parallel
