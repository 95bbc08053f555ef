#include "engine/step_meter.h"

#include <doctest/doctest.h>

#include <vector>

namespace tokenmill {
namespace {

struct Meter {
  ManualClock clock;
  Histogram step_tokens;
  std::vector<StepRecord> records;
  StepMeter meter{clock, step_tokens, [this](const StepRecord& record) { records.push_back(record); }};

  void come() { meter.request_came(clock.now_s()); }
  void launch(uint64_t id, double schedule_s = 0) {
    meter.begin_schedule();
    clock.advance(schedule_s);
    StepPlan plan;
    plan.step_id = id;
    plan.scheduled = {{.slot = 0, .num_tokens = 3}};
    meter.launching(plan, {.num_prompt_tokens = 2, .num_used_blocks = 5, .num_running = 3, .num_waiting = 7});
  }
  void collect(uint64_t id, double device_s, double text_s, bool has_work) {
    clock.advance(device_s);
    meter.collected({.step_id = id, .op_times = {.gemm_s = 0.5}});
    clock.advance(text_s);
    meter.results_taken(has_work);
  }
};

TEST_CASE("with one step in flight the device waits while the host works") {
  Meter m;
  m.clock.advance(100);  // before the first row nothing is measured
  m.come();
  m.clock.advance(1);
  m.launch(1, 2);
  m.collect(1, 10, 3, true);
  m.clock.advance(4);  // the caller's: formatting
  m.launch(2, 1);
  m.collect(2, 10, 3, false);
  const StepTimes& t = m.meter.times();
  CHECK(t.device_s == 20);
  CHECK(t.schedule_s == 3);
  CHECK(t.text_s == 6);
  CHECK(t.host_stall_s == 1 + 2 + 3 + 4 + 1 + 3);
  CHECK(t.starved_s == 0);
  REQUIRE(m.records.size() == 2);
  CHECK(m.records[0].host_wait_s == 3);
  CHECK(m.records[1].host_wait_s == 8);
  CHECK(m.records[1].device_s == 10);
  CHECK(m.records[1].num_tokens == 3);
  CHECK(m.records[1].num_prompt_tokens == 2);
  CHECK(m.records[1].num_used_blocks == 5);
  CHECK(m.records[1].num_running == 3);
  CHECK(m.records[1].num_waiting == 7);
  CHECK(m.records[1].op_times.gemm_s == 0.5);
  CHECK(m.step_tokens.sum() == 6);
}

TEST_CASE("time without a row is not the host's fault") {
  Meter m;
  m.come();
  m.launch(1);
  m.collect(1, 10, 1, false);
  m.clock.advance(50);
  m.come();
  m.come();  // a second row changes nothing
  m.clock.advance(2);
  m.launch(2);
  m.collect(2, 10, 0, false);
  CHECK(m.meter.times().starved_s == 50);
  CHECK(m.meter.times().host_stall_s == 1 + 2);
}

TEST_CASE("a second step in flight hides the host's work") {
  Meter m;
  m.come();
  m.launch(1);
  m.launch(2);
  m.collect(1, 10, 3, true);
  m.launch(3, 1);
  m.collect(2, 6, 0, true);
  m.collect(3, 10, 0, true);
  CHECK(m.meter.times().host_stall_s == 0);
  CHECK(m.meter.times().device_s == 30);
  CHECK(m.meter.times().text_s == 3);
  CHECK(m.records[1].host_wait_s == 0);
}

}  // namespace
}  // namespace tokenmill
