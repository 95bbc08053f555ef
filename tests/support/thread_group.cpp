#include "tests/support/thread_group.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <set>
#include <span>
#include <thread>

#include "kernels/core/error.h"
#include "kernels/core/stopwatch.h"

namespace tokenmill::test {
namespace {

using parallel::TransferKind;

/// A rank that stopped because another had failed.
struct GroupFailed : Error {
  using Error::Error;
};

const char* name_of(TransferKind kind) {
  constexpr const char* kNames[] = {"exchange", "all_gather", "broadcast", "send", "recv"};
  return kNames[static_cast<size_t>(kind)];
}

std::span<std::byte> bytes_of(const TensorView& view) {
  return {static_cast<std::byte*>(view.data()), static_cast<size_t>(view.num_bytes())};
}

/// Slot r of a view of n slots.
std::span<std::byte> slot(const TensorView& view, int r, int n) {
  const std::span<std::byte> all = bytes_of(view);
  const size_t size = all.size() / static_cast<size_t>(n);
  return all.subspan(static_cast<size_t>(r) * size, size);
}

std::vector<std::byte> copy_of(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

void ThreadGroup::post(const Key& key, Message message) {
  const std::lock_guard lock(mutex_);
  messages_.emplace(key, std::move(message));
  changed_.notify_all();
}

ThreadGroup::Message ThreadGroup::take(const Key& key) {
  std::unique_lock lock(mutex_);
  const auto found = [&] { return messages_.contains(key) || failed_; };
  if (!changed_.wait_for(lock, std::chrono::duration<double>(timeout_s_), found)) {
    throw Error(ErrorKind::kInternal, "rank {} waited {} s for {} {} from rank {}", key.to, timeout_s_,
                key.collective ? "collective" : "message", key.sequence, key.from);
  }
  const auto it = messages_.find(key);
  if (it == messages_.end()) throw GroupFailed(ErrorKind::kInternal, "another rank has failed");
  Message message = std::move(it->second);
  messages_.erase(it);
  return message;
}

void ThreadGroup::run(const std::function<void(int rank)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size_)), victims(static_cast<size_t>(size_));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size_; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
        return;
      } catch (const GroupFailed&) {
        victims[static_cast<size_t>(rank)] = std::current_exception();
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      failed_ = true;
      changed_.notify_all();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto* list : {&errors, &victims}) {
    for (const std::exception_ptr& error : *list) {
      if (error) std::rethrow_exception(error);
    }
  }
}

class ThreadCommunicator final : public parallel::Communicator {
 public:
  ThreadCommunicator(ThreadGroup& group, int rank, Stream& stream)
      : group_(group), rank_(rank), stream_(stream), sends_(static_cast<size_t>(group.size())), recvs_(sends_) {}
  int rank() const override { return rank_; }
  int size() const override { return group_.size(); }
  Stream& stream() override { return stream_; }

 private:
  /// Bytes from another rank, or sent to it.
  struct Piece {
    ThreadGroup::Key key;
    std::span<std::byte> bytes;
    std::vector<std::byte> sent;  ///< what they were when they were sent
  };
  struct Pending {
    TransferKind kind;
    std::vector<Piece> sent, received;
    std::span<std::byte> own_from, own_to;  ///< of this rank itself; may be the same
    bool started = false;
  };

  ThreadGroup::Key to(int other, int64_t sequence, bool collective = true) const {
    return {collective, rank_, other, sequence};
  }
  ThreadGroup::Key from(int other, int64_t sequence, bool collective = true) const {
    return {collective, other, rank_, sequence};
  }

  void start(Transfer transfer, Pending pending) {
    const auto shared = std::make_shared<Pending>(std::move(pending));
    pending_[transfer] = shared;
    stream_.enqueue([this, shared] {
      for (Piece& piece : shared->sent) {
        piece.sent = copy_of(piece.bytes);
        group_.post(piece.key, {shared->kind, piece.sent});
      }
      for (const Piece& piece : shared->received) std::ranges::fill(piece.bytes, std::byte{0xff});
      shared->started = true;
    });
  }

  void finish(Transfer transfer, Pending& pending) {
    const char* kind = name_of(pending.kind);
    TM_ASSERT(pending.started);
    for (const Piece& piece : pending.sent) {
      if (!std::ranges::equal(piece.bytes, piece.sent))
        throw Error(ErrorKind::kInternal, "rank {} wrote what its {} (transfer {}) sends before it waited for it",
                    rank_, kind, transfer);
    }
    for (const Piece& piece : pending.received) {
      if (!std::ranges::all_of(piece.bytes, [](std::byte b) { return b == std::byte{0xff}; }))
        throw Error(ErrorKind::kInternal, "rank {} wrote what its {} (transfer {}) receives before it waited for it",
                    rank_, kind, transfer);
      const ThreadGroup::Message message = group_.take(piece.key);
      if (message.bytes.size() != piece.bytes.size() || !matches(message.kind, pending.kind))
        throw Error(ErrorKind::kInternal, "rank {} got {} bytes of {} from rank {} for {} bytes of {} (transfer {})",
                    rank_, message.bytes.size(), name_of(message.kind), piece.key.from, piece.bytes.size(), kind,
                    transfer);
      std::ranges::copy(message.bytes, piece.bytes.begin());
    }
    if (pending.own_from.data() != pending.own_to.data())
      std::memcpy(pending.own_to.data(), pending.own_from.data(), pending.own_from.size());
  }

  static bool matches(TransferKind sent, TransferKind received) {
    return sent == received || (sent == TransferKind::kSend && received == TransferKind::kRecv);
  }

  void do_exchange(Transfer transfer, TensorView received, TensorView sent) override {
    Pending pending{TransferKind::kExchange, {}, {}, slot(sent, rank_, size()), slot(received, rank_, size())};
    const int64_t sequence = collectives_++;
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      pending.sent.push_back({to(r, sequence), slot(sent, r, size()), {}});
      pending.received.push_back({from(r, sequence), slot(received, r, size()), {}});
    }
    start(transfer, std::move(pending));
  }
  void do_all_gather(Transfer transfer, TensorView all, TensorView part) override {
    Pending pending{TransferKind::kAllGather, {}, {}, bytes_of(part), slot(all, rank_, size())};
    const int64_t sequence = collectives_++;
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      pending.sent.push_back({to(r, sequence), bytes_of(part), {}});
      pending.received.push_back({from(r, sequence), slot(all, r, size()), {}});
    }
    start(transfer, std::move(pending));
  }
  void do_broadcast(Transfer transfer, TensorView view, int root) override {
    Pending pending{TransferKind::kBroadcast, {}, {}, {}, {}};
    const int64_t sequence = collectives_++;
    for (int r = 0; r < size() && rank_ == root; ++r) {
      if (r != rank_) pending.sent.push_back({to(r, sequence), bytes_of(view), {}});
    }
    if (rank_ != root) pending.received.push_back({from(root, sequence), bytes_of(view), {}});
    start(transfer, std::move(pending));
  }
  void do_send(Transfer transfer, TensorView view, int other) override {
    const int64_t sequence = sends_[static_cast<size_t>(other)]++;
    start(transfer, {TransferKind::kSend, {{to(other, sequence, false), bytes_of(view), {}}}, {}, {}, {}});
  }
  void do_recv(Transfer transfer, TensorView view, int other) override {
    const int64_t sequence = recvs_[static_cast<size_t>(other)]++;
    start(transfer, {TransferKind::kRecv, {}, {{from(other, sequence, false), bytes_of(view), {}}}, {}, {}});
  }
  void do_wait(Transfer transfer) override {
    const auto it = pending_.find(transfer);
    if (it == pending_.end()) {  // of zero elements, or already waited for
      if (!waited_.insert(transfer).second)
        throw Error(ErrorKind::kInternal, "rank {} waits for transfer {} again", rank_, transfer);
      return;
    }
    const std::shared_ptr<Pending> pending = it->second;
    pending_.erase(it);
    waited_.insert(transfer);
    stream_.enqueue([this, transfer, pending] {
      const Stopwatch watch(count(pending->kind).exposed_s);
      finish(transfer, *pending);
    });
  }

  ThreadGroup& group_;
  int rank_;
  Stream& stream_;
  int64_t collectives_ = 0;
  std::vector<int64_t> sends_, recvs_;  // by peer
  std::map<Transfer, std::shared_ptr<Pending>> pending_;
  std::set<Transfer> waited_;
};

std::unique_ptr<parallel::Communicator> ThreadGroup::communicator(int rank, Stream& stream) {
  return std::make_unique<ThreadCommunicator>(*this, rank, stream);
}

}  // namespace tokenmill::test
