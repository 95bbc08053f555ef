#include "kernels/cpu/thread_team.h"

#include <immintrin.h>
#include <sched.h>

#include <system_error>

#include "kernels/core/check.h"

namespace tokenmill::cpu {
namespace {

// About 20 us of pauses, then yields for about as long again where cores are free: longer than the gap between two
// operations of a step, shorter than a scheduler's time slice.
constexpr int kSpins = 1000;
constexpr int kYields = 100;

/// Waits until value differs from `old`; returns the new value.
uint32_t wait_for_change(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    const uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    _mm_pause();
  }
  for (int i = 0; i < kYields; ++i) {
    const uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    sched_yield();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

ThreadTeam::ThreadTeam(int num_threads) : errors_(static_cast<size_t>(num_threads > 0 ? num_threads : 1)) {
  TM_ASSERT(num_threads >= 1, "a team of {} threads", num_threads);
  try {
    for (int thread = 1; thread < num_threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
  } catch (const std::system_error& error) {
    stop();
    throw Error(ErrorKind::kDevice, "thread {} of {} could not be started ({}); lower --threads or raise the limit (ulimit -u)",
                workers_.size() + 1, num_threads, error.what());
  }
}

ThreadTeam::~ThreadTeam() { stop(); }

void ThreadTeam::stop() {
  stopping_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadTeam::call(int thread) {
  try {
    job_.call(job_.context, thread);
  } catch (...) {
    errors_[static_cast<size_t>(thread)] = std::current_exception();
  }
}

void ThreadTeam::work(int thread) {
  uint32_t seen = 0;
  while (true) {
    seen = wait_for_change(epoch_, seen);
    if (stopping_.load(std::memory_order_relaxed)) return;
    call(thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void ThreadTeam::run_job(Job job) {
  job_ = job;
  if (!workers_.empty()) {
    running_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
  }
  call(0);
  uint32_t left = running_.load(std::memory_order_acquire);
  while (left != 0) left = wait_for_change(running_, left);
  for (std::exception_ptr& error : errors_) {
    if (error) {
      const std::exception_ptr first = error;
      for (std::exception_ptr& other : errors_) other = nullptr;
      std::rethrow_exception(first);
    }
  }
}

}  // namespace tokenmill::cpu
