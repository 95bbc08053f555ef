#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "parallel/communicator.h"

namespace tokenmill::test {

/// The ranks of a group as threads of this process, without MPI. Transfers are buffered: none waits for a wait() of
/// another rank. The communicators are strict about their contract: what is received is filled with 0xff until the
/// wait(), and a rank that touches it or writes what it sends before its wait(), waits twice or starts another transfer
/// than its peers gets Error(kInternal) at its stream's next synchronize().
class ThreadGroup {
 public:
  /// timeout_s: how long a rank waits for another's transfer.
  explicit ThreadGroup(int size, double timeout_s = 20) : size_(size), timeout_s_(timeout_s) {}
  int size() const { return size_; }
  /// rank's end of the group; one per rank. stream and the group outlive it.
  std::unique_ptr<parallel::Communicator> communicator(int rank, Stream& stream);
  /// Calls body(rank) on a thread for each rank and returns when all have ended. When some throw, ranks that wait for
  /// them end too, and the exception of the lowest of those that failed first is thrown.
  void run(const std::function<void(int rank)>& body);

 private:
  friend class ThreadCommunicator;
  /// Collectives are numbered over the group, sends over (from, to).
  struct Key {
    bool collective;
    int from, to;
    int64_t sequence;
    bool operator<(const Key& other) const {
      return std::tie(collective, from, to, sequence) <
             std::tie(other.collective, other.from, other.to, other.sequence);
    }
  };
  struct Message {
    parallel::TransferKind kind;
    std::vector<std::byte> bytes;
  };
  void post(const Key& key, Message message);
  Message take(const Key& key);

  int size_;
  double timeout_s_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Message> messages_;
  bool failed_ = false;
};

}  // namespace tokenmill::test
