#include "jobs/progress.h"

#include <doctest/doctest.h>

namespace tokenmill::jobs {
namespace {

std::vector<ReplicaStatus> replicas(int64_t rows) {
  ReplicaStatus one{.rows_finished = rows / 2, .rows_failed = 1};
  one.stats.prompt_tokens = rows * 10;
  one.stats.generation_tokens = rows * 5;
  one.stats.running_now = 3;
  one.stats.kv_usage_now = 0.25;
  ReplicaStatus other = one;
  other.rows_finished = rows - rows / 2;
  other.stats.kv_usage_now = 0.75;
  return {one, other};
}

TEST_CASE("counts are added up, usage is averaged, rates and the end follow the clock") {
  ProgressTracker tracker(1000);
  const JobProgress first = tracker.update(replicas(0), 0);
  CHECK(first.rows_done == 0);
  CHECK(first.rows_per_s == 0);
  CHECK(first.eta_s == -1);
  const JobProgress later = tracker.update(replicas(100), 10);
  CHECK(later.rows_done == 100);
  CHECK(later.rows_failed == 2);
  CHECK(later.rows_total == 1000);
  CHECK(later.running == 6);
  CHECK(later.kv_usage == doctest::Approx(0.5));
  CHECK(later.rows_per_s == doctest::Approx(10));
  CHECK(later.prompt_tokens_per_s == doctest::Approx(200));
  CHECK(later.generation_tokens_per_s == doctest::Approx(100));
  CHECK(later.eta_s == doctest::Approx(90));
  CHECK(tracker.update(replicas(1000), 20).eta_s == 0);
}

TEST_CASE("rates forget what is older than half a minute") {
  ProgressTracker tracker(100'000);
  for (int second = 0; second <= 100; ++second) tracker.update(replicas(second), second);  // 1 row per second
  JobProgress progress;
  for (int second = 101; second <= 140; ++second)
    progress = tracker.update(replicas(100 + (second - 100) * 50), second);
  CHECK(progress.rows_per_s == doctest::Approx(50));
}

}  // namespace
}  // namespace tokenmill::jobs
