#include "engine/waiting_queue.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <chrono>
#include <span>

#include "kernels/core/check.h"

namespace tokenmill {
namespace {

using Clock = std::chrono::steady_clock;

/// Adds the time of its life.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), start_(Clock::now()) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  double& seconds_;
  Clock::time_point start_;
};

/// Hashes of the beginnings that end with a full page.
void hash_pages(std::span<const int32_t> token_ids, int64_t page_size, std::vector<uint64_t>& pages) {
  const auto tokens = static_cast<size_t>(page_size);
  pages.clear();
  uint64_t hash = 0;
  for (size_t end = tokens; end <= token_ids.size(); end += tokens) {
    hash = XXH3_64bits_withSeed(&token_ids[end - tokens], tokens * sizeof(int32_t), hash);
    pages.push_back(hash);
  }
}

}  // namespace

void WaitingQueue::push(std::unique_ptr<Sequence> sequence, int64_t expected_tokens) {
  const Stopwatch stopwatch(seconds_);
  const bool by_prefix = options_.order == WaitingOrder::kPrefix;
  if (by_prefix) hash_pages(sequence->token_ids(), options_.page_size, pages_);
  planned_.emplace(plan_.add(pages_, by_prefix ? expected_tokens : 0), std::move(sequence));
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
