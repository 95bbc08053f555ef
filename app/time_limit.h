#pragma once
#include <string>

#include "app/options.h"
#include "jobs/walltime.h"

namespace tokenmill::app {

/// Now, on the steady clock and as seconds since 1970.
struct TwoClocks {
  double steady_s = 0;
  double epoch_s = 0;
  static TwoClocks now();
};

/// The time a run has that began at start_s (steady): until --max-seconds after it, --deadline, or, where that is not
/// given, slurm_job_end_time (the content of SLURM_JOB_END_TIME; null or empty: none), whichever comes first. Throws
/// Error(kConfig) when --deadline has passed or Slurm's time is no number.
jobs::WalltimeOptions walltime_options(const RunOptions& options, double start_s, const TwoClocks& now,
                                       const char* slurm_job_end_time);

}  // namespace tokenmill::app
