#include "jobs/walltime.h"

#include <algorithm>

namespace tokenmill::jobs {
namespace {

constexpr double kMostDraining = 0.04;  // of the whole time
// Reading the parts, checking and writing: far below what disks and file systems of clusters do.
constexpr double kMergeBytesPerSecond = 50e6;

}  // namespace

double Walltime::stop_before_s() const {
  return options_.stop_before_s.value_or(std::clamp((options_.end_s - options_.start_s) / 30, 0.5, 30.0));
}

void Walltime::raise(StopLevel level, StopCause cause) {
  if (level <= level_) return;
  if (level_ == StopLevel::kNone) cause_ = cause;
  level_ = level;
}

void Walltime::request(StopLevel level, double now_s) {
  if (level_ == StopLevel::kNone && level == StopLevel::kDrain) drain_end_s_ = now_s + options_.drain_s;
  raise(level, StopCause::kSignal);
}

StopLevel Walltime::update(double now_s, const RunSpeed& speed) {
  if (now_s >= drain_end_s_) raise(StopLevel::kSave, StopCause::kSignal);
  const double whole_s = options_.end_s - options_.start_s;
  // The step in flight and the next one, which may be as long, then the last commit.
  const double saving_s = 2 * speed.longest_step_s + std::clamp(whole_s / 100, 0.1, 2.0);
  const double save_at_s = options_.end_s - stop_before_s() - saving_s;
  if (now_s >= save_at_s - std::min(speed.row_s, kMostDraining * whole_s)) raise(StopLevel::kDrain, StopCause::kTime);
  if (now_s >= save_at_s) raise(StopLevel::kSave, StopCause::kTime);
  return level_;
}

bool Walltime::has_time_to_merge(double now_s, int64_t part_bytes) const {
  return now_s + static_cast<double>(part_bytes) / kMergeBytesPerSecond + stop_before_s() / 2 <= options_.end_s;
}

}  // namespace tokenmill::jobs
