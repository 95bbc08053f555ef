#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "jobs/stop_level.h"

namespace tokenmill::jobs {

/// What a signal makes of the level: USR1 and USR2 drain, TERM saves, a second TERM ends at once. Slurm sends TERM
/// twice within moments at a time limit: one that comes less than kSameTerm_s after the first is the same.
StopLevel escalated(StopLevel level, int signal, double since_first_term_s);
inline constexpr double kSameTerm_s = 1;

/// USR1, USR2 and TERM, taken by a thread of its own: they are blocked in the constructing thread and in all that are
/// started from then on, so nothing is ever interrupted by them. Construct it before MPI and any other thread. One per
/// process.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// What to do when the level rises, on the signals' thread, and at once where it has risen already (on the caller's).
  /// Returns when the handler before is not running any more. May be empty.
  void handle(std::function<void(StopLevel)> handler);
  StopLevel level() const { return level_; }

 private:
  void run();
  void take(int signal);
  std::atomic<StopLevel> level_ = StopLevel::kNone;
  std::mutex mutex_;  // of handler_
  std::function<void(StopLevel)> handler_;
  double first_term_s_ = 0;
  int signal_fd_ = -1, end_fd_ = -1;
  std::thread thread_;
};

}  // namespace tokenmill::jobs
