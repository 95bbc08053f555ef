#include "app/time_limit.h"

#include <doctest/doctest.h>

#include <cmath>

#include "kernels/core/error.h"

namespace tokenmill::app {
namespace {

constexpr TwoClocks kNow{.steady_s = 1000, .epoch_s = 1'800'000'000};

TEST_CASE("what comes first of --max-seconds and --deadline, or Slurm's end, ends the time") {
  RunOptions options;
  CHECK(std::isinf(walltime_options(options, 990, kNow, nullptr).end_s));
  CHECK(std::isinf(walltime_options(options, 990, kNow, "").end_s));
  CHECK(walltime_options(options, 990, kNow, "1800000060").end_s == 1060);
  options.max_seconds = 50;  // since the start, ten seconds ago
  CHECK(walltime_options(options, 990, kNow, "1800000060").end_s == 1040);
  options.deadline = 1'800'000'020;
  CHECK(walltime_options(options, 990, kNow, "1800000010").end_s == 1020);
  options.stop_before_seconds = 7;
  const jobs::WalltimeOptions walltime = walltime_options(options, 990, kNow, nullptr);
  CHECK(walltime.start_s == 990);
  CHECK(walltime.stop_before_s == 7);
}

TEST_CASE("a deadline that has passed and an end that is no number are refused by name") {
  RunOptions options;
  CHECK_THROWS_WITH_AS(walltime_options(options, 0, kNow, "soon"), doctest::Contains("SLURM_JOB_END_TIME is soon"),
                       Error);
  CHECK_NOTHROW(walltime_options(options, 0, kNow, "1700000000"));  // the run then stops before its first row
  options.deadline = 1'799'999'000;
  CHECK_THROWS_WITH_AS(walltime_options(options, 0, kNow, nullptr),
                       doctest::Contains("--deadline 1799999000 was 1000 s ago"), Error);
}

}  // namespace
}  // namespace tokenmill::app
