#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <type_traits>
#include <vector>

namespace tokenmill::cpu {

/// A fixed team of threads for the work of one rank; thread 0 is the caller of run(). Hand-over is by spinning for some
/// microseconds, then yielding (ranks may share cores), then sleeping. One thread at a time may call run().
class ThreadTeam {
 public:
  explicit ThreadTeam(int num_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Runs function(thread) on every thread of the team, 0 <= thread < num_threads(), and returns when all are done.
  /// Exceptions cross: the one of the lowest thread is thrown here, after all have finished. Not re-entrant.
  template <typename Function>
  void run(Function&& function) {
    using Callable = std::remove_reference_t<Function>;
    run_job({[](void* context, int thread) { (*static_cast<Callable*>(context))(thread); },
             const_cast<void*>(static_cast<const void*>(&function))});
  }

  /// run(), or a plain loop over the thread numbers on the caller where waking the team would cost more than the work
  /// (operations: roughly, vector instructions or cache lines). Same partition, so same bits.
  template <typename Function>
  void run_sized(int64_t operations, Function&& function) {
    if (operations >= kWorthWaking && num_threads() > 1) return run(function);
    for (int thread = 0; thread < num_threads(); ++thread) function(thread);
  }

  struct Range {
    int64_t begin, end;
  };
  /// The contiguous part of [0, count) that belongs to thread.
  Range share(int64_t count, int thread) const {
    const int64_t n = num_threads();
    return {count * thread / n, count * (thread + 1) / n};
  }

 private:
  static constexpr int64_t kWorthWaking = 8192;
  struct Job {
    void (*call)(void* context, int thread);
    void* context;
  };
  void run_job(Job job);
  void work(int thread);
  void stop();  ///< ends and joins the workers started so far
  void call(int thread);

  Job job_{};
  std::atomic<uint32_t> epoch_{0};    // one more per job; the release that publishes job_
  std::atomic<uint32_t> running_{0};  // workers that have not finished the current job
  std::atomic<bool> stopping_{false};
  std::vector<std::exception_ptr> errors_;
  std::vector<std::thread> workers_;
};

}  // namespace tokenmill::cpu
