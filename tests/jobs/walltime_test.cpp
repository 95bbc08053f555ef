#include "jobs/walltime.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tokenmill::jobs {
namespace {

TEST_CASE("without an end and a signal a run never stops") {
  Walltime walltime;
  CHECK(walltime.update(1e9, {.longest_step_s = 1e6, .row_s = 1e6}) == StopLevel::kNone);
  CHECK(walltime.cause() == StopCause::kNone);
  CHECK(walltime.has_time_to_merge(1e9, int64_t{1} << 50));
}

TEST_CASE("a drain by a signal becomes a save when its time is over; what comes sooner wins") {
  Walltime walltime({.drain_s = 20});
  walltime.request(StopLevel::kDrain, 100);
  CHECK(walltime.update(110, {}) == StopLevel::kDrain);
  walltime.request(StopLevel::kDrain, 115);  // does not begin anew
  CHECK(walltime.update(119.9, {}) == StopLevel::kDrain);
  CHECK(walltime.update(120, {}) == StopLevel::kSave);
  CHECK(walltime.cause() == StopCause::kSignal);
  Walltime hasty;
  hasty.request(StopLevel::kSave, 5);
  hasty.request(StopLevel::kDrain, 5);
  CHECK(hasty.update(5, {}) == StopLevel::kSave);
}

TEST_CASE("a signal shortly before the end does not make the run last longer") {
  Walltime walltime({.start_s = 0, .end_s = 100, .drain_s = 20});
  walltime.request(StopLevel::kDrain, 90);
  CHECK(walltime.update(98, {.longest_step_s = 0.1, .row_s = 1}) == StopLevel::kSave);
}

TEST_CASE("parts are merged where there is time for it") {
  const Walltime walltime({.start_s = 0, .end_s = 100, .stop_before_s = 10});
  CHECK(walltime.has_time_to_merge(90, 1'000'000));
  CHECK_FALSE(walltime.has_time_to_merge(90, int64_t{100} << 30));
  CHECK_FALSE(walltime.has_time_to_merge(99, 0));
}

/// A replica on a clock of its own: slots that are kept full with rows, steps of varying length.
struct Simulation {
  double whole_s, step_s, stop_before_s;
  int64_t row_steps;  // of a row, on average
  uint64_t seed;
  // What came of it:
  double admitted_until_s = 0, saved_at_s = 0;

  void run() {
    std::mt19937_64 random(seed);
    const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    Walltime walltime({.start_s = 0, .end_s = whole_s, .stop_before_s = stop_before_s});
    std::vector<int64_t> slots(8, 0);
    int64_t finished = 0, steps = 0;
    double now_s = 0, longest_s = 0;
    for (;;) {
      const double row_s = finished > 0 ? static_cast<double>(8 * steps) / static_cast<double>(finished) * now_s /
                                              static_cast<double>(steps)
                                        : 0;
      const StopLevel level = walltime.update(now_s, {.longest_step_s = longest_s, .row_s = row_s});
      if (level == StopLevel::kSave) break;
      if (level == StopLevel::kNone) admitted_until_s = now_s;
      for (int64_t& left : slots) {
        if (left == 0 && level == StopLevel::kNone)
          left = 1 + static_cast<int64_t>(uniform() * 2 * static_cast<double>(row_steps));
        if (left > 0 && --left == 0) ++finished;
      }
      const double took_s = step_s * (0.5 + uniform());
      longest_s = std::max(took_s, 0.98 * longest_s);
      now_s += took_s;
      ++steps;
    }
    saved_at_s = now_s;
  }
};

TEST_CASE("whatever the speed, a run is saved in time and has used nine tenths of it") {
  for (const double whole_s : {30.0, 600.0, 7200.0, 86400.0})
    for (const double step_s : {0.001, 0.02, 0.3})
      for (const int64_t row_steps : {3, 100, 5000})
        for (uint64_t seed = 0; seed < 2; ++seed) {
          if (step_s > whole_s / 300 || whole_s / step_s > 1e6) continue;  // too coarse; too long to simulate
          CAPTURE(whole_s);
          CAPTURE(step_s);
          CAPTURE(row_steps);
          Simulation run{whole_s, step_s, std::clamp(whole_s / 30, 0.5, 30.0), row_steps, seed};
          run.run();
          CHECK(run.saved_at_s <= whole_s - run.stop_before_s);
          CHECK(run.admitted_until_s >= 0.9 * whole_s);
          CHECK(run.saved_at_s >= run.admitted_until_s);
        }
}

}  // namespace
}  // namespace tokenmill::jobs
