#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace tokenmill::jobs {

/// Hands items from one thread to another, bounded by their number and their bytes (an item larger than the bound
/// passes when the queue is empty). Thread-safe.
template <typename T>
class BoundedQueue {
 public:
  BoundedQueue(int64_t max_items, int64_t max_bytes) : max_items_(max_items), max_bytes_(max_bytes) {}

  /// Waits for room. Returns false, and drops the item, when the queue is closed.
  bool push(T item, int64_t bytes) {
    std::unique_lock lock(mutex_);
    has_room_.wait(lock, [&] { return closed_ || items_.empty() || fits(bytes); });
    if (closed_) return false;
    bytes_ += bytes;
    items_.emplace_back(std::move(item), bytes);
    has_items_.notify_one();
    return true;
  }
  /// Never waits.
  std::optional<T> try_pop() {
    std::lock_guard lock(mutex_);
    return pop_locked();
  }
  /// Waits up to timeout_s for an item or for the end.
  std::optional<T> pop(double timeout_s) {
    std::unique_lock lock(mutex_);
    wait_locked(lock, timeout_s);
    return pop_locked();
  }
  /// Waits up to timeout_s until there is an item or the queue is closed.
  void wait(double timeout_s) {
    std::unique_lock lock(mutex_);
    wait_locked(lock, timeout_s);
  }
  /// No item enters any more; those inside can still be popped.
  void close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    has_room_.notify_all();
    has_items_.notify_all();
  }
  /// Closed and empty.
  bool ended() const {
    std::lock_guard lock(mutex_);
    return closed_ && items_.empty();
  }

 private:
  bool fits(int64_t bytes) const {
    return static_cast<int64_t>(items_.size()) < max_items_ && bytes_ + bytes <= max_bytes_;
  }
  void wait_locked(std::unique_lock<std::mutex>& lock, double timeout_s) {
    has_items_.wait_for(lock, std::chrono::duration<double>(timeout_s), [&] { return closed_ || !items_.empty(); });
  }
  std::optional<T> pop_locked() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front().first));
    bytes_ -= items_.front().second;
    items_.pop_front();
    has_room_.notify_one();
    return item;
  }

  const int64_t max_items_, max_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable has_room_, has_items_;
  std::deque<std::pair<T, int64_t>> items_;
  int64_t bytes_ = 0;
  bool closed_ = false;
};

}  // namespace tokenmill::jobs
