#include "engine/waiting_queue.h"

#include "kernels/core/check.h"
#include "kernels/core/stopwatch.h"

namespace tokenmill {

void WaitingQueue::push(std::unique_ptr<Sequence> sequence, std::span<const uint64_t> pages, int64_t expected_tokens) {
  const bool by_prefix = options_.order == WaitingOrder::kPrefix;
  const int64_t ticket = by_prefix ? plan_.add(pages, expected_tokens) : plan_.add({}, 0);
  planned_.emplace(ticket, std::move(sequence));
}

void WaitingQueue::push_front(std::unique_ptr<Sequence> sequence) { returned_.push_back(std::move(sequence)); }

Sequence& WaitingQueue::front() {
  TM_ASSERT(!empty());
  if (!returned_.empty()) return *returned_.back();
  const Stopwatch stopwatch(seconds_);
  return *planned_.at(plan_.front());
}

std::unique_ptr<Sequence> WaitingQueue::pop() {
  TM_ASSERT(!empty());
  std::unique_ptr<Sequence> sequence;
  if (!returned_.empty()) {
    sequence = std::move(returned_.back());
    returned_.pop_back();
    return sequence;
  }
  const Stopwatch stopwatch(seconds_);
  const auto found = planned_.find(plan_.front());
  sequence = std::move(found->second);
  planned_.erase(found);
  plan_.pop();
  return sequence;
}

}  // namespace tokenmill
