#pragma once
#include <cstdint>
#include <deque>
#include <memory>

#include "engine/sequence.h"

namespace tokenmill {

/// Sequences that hold no slot, in the order in which the scheduler takes them: first those put back by push_front(),
/// the last one first; then the pushed ones in order of arrival. The scheduler is right for any order of the pushed
/// ones, but what front() shows stays there until pop() or push_front(): it is what admission waits for.
class WaitingQueue {
 public:
  void push(std::unique_ptr<Sequence> sequence);
  /// For a sequence that has run, or that goes before all others for another reason.
  void push_front(std::unique_ptr<Sequence> sequence);
  /// The next one. Not on an empty queue.
  Sequence& front() const;
  /// Takes the next one out. Not on an empty queue.
  std::unique_ptr<Sequence> pop();
  int64_t size() const { return static_cast<int64_t>(sequences_.size()); }
  bool empty() const { return sequences_.empty(); }

 private:
  std::deque<std::unique_ptr<Sequence>> sequences_;
};

}  // namespace tokenmill
