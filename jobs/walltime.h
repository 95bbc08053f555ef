#pragma once
#include <cstdint>
#include <limits>
#include <optional>

#include "jobs/stop_level.h"

namespace tokenmill::jobs {

/// The time a run has. Seconds on one steady clock.
struct WalltimeOptions {
  double start_s = 0;                                      ///< when the run began
  double end_s = std::numeric_limits<double>::infinity();  ///< when it will be ended
  /// Everything is on the disk so long before the end; empty: a thirtieth of the time, 0.5 to 30 s.
  std::optional<double> stop_before_s = {};
  double drain_s = 20;  ///< how long rows may finish after a signal
};

/// How fast the slowest replica is, as measured so far.
struct RunSpeed {
  double longest_step_s = 0;
  double row_s = 0;  ///< from a row's first step to its end, on average; 0: not known yet
};

/// Decides when a run stops: on rank 0, pure, with the time given. Rows go on until what is left of the time is needed
/// to save them; a little earlier (the time a row takes, at most a 25th of the whole) none begins any more, because its
/// prompt would be computed again by the next run.
class Walltime {
 public:
  explicit Walltime(const WalltimeOptions& options = {}) : options_(options) {}

  /// A signal asks for it.
  void request(StopLevel level, double now_s);
  /// The level at this time; it never falls.
  StopLevel update(double now_s, const RunSpeed& speed);
  StopLevel level() const { return level_; }
  StopCause cause() const { return cause_; }
  /// Whether merging parts of this size ends in time.
  bool has_time_to_merge(double now_s, int64_t part_bytes) const;

 private:
  void raise(StopLevel level, StopCause cause);
  double stop_before_s() const;
  WalltimeOptions options_;
  StopLevel level_ = StopLevel::kNone;
  StopCause cause_ = StopCause::kNone;
  double drain_end_s_ = std::numeric_limits<double>::infinity();
};

}  // namespace tokenmill::jobs
