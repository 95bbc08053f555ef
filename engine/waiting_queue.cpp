#include "engine/waiting_queue.h"

#include "kernels/core/check.h"

namespace tokenmill {

void WaitingQueue::push(std::unique_ptr<Sequence> sequence) { sequences_.push_back(std::move(sequence)); }

void WaitingQueue::push_front(std::unique_ptr<Sequence> sequence) { sequences_.push_front(std::move(sequence)); }

Sequence& WaitingQueue::front() const {
  TM_ASSERT(!empty());
  return *sequences_.front();
}

std::unique_ptr<Sequence> WaitingQueue::pop() {
  TM_ASSERT(!empty());
  std::unique_ptr<Sequence> sequence = std::move(sequences_.front());
  sequences_.pop_front();
  return sequence;
}

}  // namespace tokenmill
