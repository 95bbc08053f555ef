#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/prefix_plan.h"
#include "engine/scheduler_options.h"
#include "engine/sequence.h"

namespace tokenmill {

struct WaitingQueueOptions {
  WaitingOrder order = WaitingOrder::kArrival;
  int64_t max_overtakes = int64_t{1} << 14;  ///< PrefixPlan's
};

/// Sequences that hold no slot, in the order in which the scheduler takes them: first those put back by push_front(),
/// the last one first; then the pushed ones in the queue's order. The scheduler is right for any order of the pushed
/// ones, but what front() shows stays there until pop() or push_front(): it is what admission waits for.
class WaitingQueue {
 public:
  explicit WaitingQueue(const WaitingQueueOptions& options = {}) : options_(options), plan_(options.max_overtakes) {}

  /// pages: PrefixPlan's of its tokens. expected_tokens: prompt and generated ones, as far as anyone can tell.
  void push(std::unique_ptr<Sequence> sequence, std::span<const uint64_t> pages, int64_t expected_tokens);
  /// For a sequence that has run, or that goes before all others for another reason.
  void push_front(std::unique_ptr<Sequence> sequence);
  /// The next one. Not on an empty queue.
  Sequence& front();
  /// Takes the next one out. Not on an empty queue.
  std::unique_ptr<Sequence> pop();
  int64_t size() const { return static_cast<int64_t>(returned_.size() + planned_.size()); }
  bool empty() const { return size() == 0; }
  double seconds() const { return seconds_; }  ///< spent in front() and pop()

 private:
  WaitingQueueOptions options_;
  std::vector<std::unique_ptr<Sequence>> returned_;  // a stack
  PrefixPlan plan_;
  std::unordered_map<int64_t, std::unique_ptr<Sequence>> planned_;  // by ticket
  double seconds_ = 0;
};

}  // namespace tokenmill
