#pragma once

namespace tokenmill::jobs {

/// How soon a run is to end before its rows are done; each is sooner than the one before.
enum class StopLevel : int {
  kNone,
  kDrain,  ///< no row begins any more; those that run may finish for a while
  kSave,   ///< what runs is saved after the step in flight
  kNow,    ///< nothing is saved any more
};

/// Why it does.
enum class StopCause : int { kNone, kSignal, kTime };

}  // namespace tokenmill::jobs
