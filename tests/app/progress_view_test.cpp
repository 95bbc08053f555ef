#include "app/progress_view.h"

#include <doctest/doctest.h>

using namespace tokenmill;
using namespace tokenmill::app;

namespace {

jobs::JobProgress some_progress() {
  return {.phase = jobs::JobPhase::kRunning,
          .elapsed_s = 10,
          .rows_total = 5000,
          .rows_done = 1249,
          .rows_failed = 3,
          .prompt_tokens = 0,
          .generation_tokens = 0,
          .rows_per_s = 10,
          .prompt_tokens_per_s = 1204.4,
          .generation_tokens_per_s = 322.6,
          .running = 64,
          .waiting = 128,
          .kv_usage = 0.414,
          .eta_s = 151};
}

}  // namespace

TEST_CASE("a progress line holds rows, rates, queue, memory and time left") {
  CHECK(progress_line(some_progress()) ==
        "1,249/5,000 rows (24%), 3 failed | prompt 1,204 tok/s, generation 323 tok/s | 64 running, 128 waiting | KV "
        "41% | "
        "ETA 0:02:31");
  jobs::JobProgress p = some_progress();
  p.prefix_hit_rate = 0.345;
  p.preemptions = 1234;
  CHECK(progress_line(p).ends_with(" | KV 41% | prefix hits 34% | 1,234 preemptions | ETA 0:02:31"));
  p = some_progress();
  p.eta_s = -1;
  p.rows_failed = 0;
  CHECK(progress_line(p).find("failed") == std::string::npos);
  CHECK(progress_line(p).ends_with("ETA unknown"));
  p.phase = jobs::JobPhase::kMerging;
  CHECK(progress_line(p) == "merging parts");
}

TEST_CASE("a progress bar never exceeds the terminal") {
  CHECK(progress_bar(some_progress(), 200).starts_with("[####................] 1,249/5,000 rows"));
  for (const int columns : {0, 1, 10, 79}) CHECK(progress_bar(some_progress(), columns).size() == columns);
  jobs::JobProgress none = some_progress();
  none.rows_total = none.rows_done = 0;
  CHECK(progress_bar(none, 200).starts_with("[####################] 0/0 rows (100%)"));
}

TEST_CASE("numbers and durations are written for people") {
  CHECK(format_count(0) == "0");
  CHECK(format_count(999) == "999");
  CHECK(format_count(1000) == "1,000");
  CHECK(format_count(1234567) == "1,234,567");
  CHECK(format_count(-1234567) == "-1,234,567");
  CHECK(format_count(-123) == "-123");
  CHECK(format_duration(0.4) == "0:00:00");
  CHECK(format_duration(151) == "0:02:31");
  CHECK(format_duration(3600 * 25) == "1 d 01:00:00");
}
