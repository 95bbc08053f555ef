#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "kernels/core/check.h"
#include "parallel/communicator.h"

namespace tokenmill::parallel {

/// One rank's part in a transfer between the ranks of a group, in host memory.
struct Move {
  TransferKind kind = TransferKind::kSend;
  std::byte* received = nullptr;  ///< exchange, all_gather: rank r's part comes to received + r * part_bytes
  const std::byte* sent =
      nullptr;             ///< exchange: rank r's part leaves from sent + r * part_bytes; else all get the same
  int64_t part_bytes = 0;  ///< between two ranks; more than 0
  int peer = -1;           ///< broadcast: the root; send: the receiver; recv: the sender

  bool sends_to(int rank, int here) const {
    switch (kind) {
      case TransferKind::kExchange:
      case TransferKind::kAllGather:
        return rank != here;
      case TransferKind::kBroadcast:
        return peer == here && rank != here;
      case TransferKind::kSend:
        return rank == peer;
      case TransferKind::kRecv:
        return false;
    }
    return false;
  }
  bool receives_from(int rank, int here) const {
    switch (kind) {
      case TransferKind::kExchange:
      case TransferKind::kAllGather:
        return rank != here;
      case TransferKind::kBroadcast:
        return peer == rank && rank != here;
      case TransferKind::kSend:
        return false;
      case TransferKind::kRecv:
        return rank == peer;
    }
    return false;
  }
  const std::byte* sent_to(int rank) const { return kind == TransferKind::kExchange ? sent + rank * part_bytes : sent; }
  std::byte* received_from(int rank) const {
    return kind == TransferKind::kExchange || kind == TransferKind::kAllGather ? received + rank * part_bytes
                                                                               : received;
  }
};

/// A way for host bytes from rank to rank of one group. Nothing blocks: progress() does what can be done now. One
/// thread uses a transport; the ranks start equal moves in the same order (send and recv: each pair of ranks).
class HostTransport {
 public:
  using Transfer = Communicator::Transfer;
  virtual ~HostTransport() = default;
  virtual const char* name() const = 0;  ///< "mpi", "shm"
  /// Moves to and from the other ranks only: this rank's part for itself is the caller's. Transfer is a name not in use
  /// here.
  virtual void start(Transfer transfer, const Move& move) = 0;
  /// Whether anything moved. Throws Error when a peer's part does not match.
  virtual bool progress() = 0;
  /// Whether progress() has brought the move to its end: sent bytes may be written, received ones read. True once; its
  /// name is free then.
  virtual bool finished(Transfer transfer) = 0;
};

/// What a transport keeps of the moves under way, by their names. An Entry has `Transfer transfer`, 0 when it is free;
/// entries stay where they are and are used again, so that nothing is allocated once warm.
template <typename Entry>
class MovesUnderWay {
 public:
  using Transfer = Communicator::Transfer;
  /// A free entry, with what it held before but for its name.
  Entry& add(Transfer transfer) {
    const auto free = std::find_if(entries_.begin(), entries_.end(), [](const Entry& e) { return e.transfer == 0; });
    Entry& entry = free == entries_.end() ? entries_.emplace_back() : *free;
    entry.transfer = transfer;
    return entry;
  }
  Entry& at(Transfer transfer) {
    const auto entry =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.transfer == transfer; });
    TM_ASSERT(entry != entries_.end(), "transfer {} is not under way", transfer);
    return *entry;
  }
  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }

 private:
  std::deque<Entry> entries_;
};

/// All transports of one rank's thread, and what that thread waits in. Whoever waits for one transfer moves all of
/// them: a peer may wait for another one first, maybe in another group.
class HostProgress {
 public:
  /// For other ranks, from construction to destruction; they do not nest.
  class Wait {
   public:
    /// what is a literal; number tells one from the next (a transfer of a group, ...).
    Wait(HostProgress& progress, const char* what, uint64_t number) : progress_(progress) {
      progress_.wait_number_.store(number, std::memory_order_relaxed);
      progress_.wait_what_.store(what, std::memory_order_release);
    }
    ~Wait() { progress_.wait_what_.store(nullptr, std::memory_order_release); }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    HostProgress& progress_;
  };

  HostProgress() = default;
  HostProgress(const HostProgress&) = delete;
  HostProgress& operator=(const HostProgress&) = delete;
  /// transport is removed before it dies.
  void add(HostTransport& transport) { transports_.push_back(&transport); }
  void remove(HostTransport& transport) { std::erase(transports_, &transport); }
  /// "exchange 812", for people; empty when it does not wait. Any thread.
  std::string waits_in() const {
    const char* what = wait_what_.load(std::memory_order_acquire);
    return what == nullptr ? "" : what + (' ' + std::to_string(wait_number_.load(std::memory_order_relaxed)));
  }
  bool progress() {
    bool moved = false;
    for (HostTransport* transport : transports_) moved = transport->progress() || moved;
    return moved;
  }

 private:
  std::vector<HostTransport*> transports_;
  std::atomic<const char*> wait_what_ = nullptr;
  std::atomic<uint64_t> wait_number_ = 0;
};

}  // namespace tokenmill::parallel
