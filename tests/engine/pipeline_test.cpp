// The engine on a pipeline of stages: what the plans in flight hold, and how much of their time the stages idle.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>

#include "engine/engine.h"
#include "tests/engine/scheduler_bench.h"
#include "tests/support/fake_decoder.h"
#include "tests/support/fake_runner.h"

namespace tokenmill {
namespace {

using test::Ids;
using test::SchedulerBench;

RunnerLimits pipeline_limits(int num_stages, int max_steps_in_flight) {
  RunnerLimits limits;
  limits.kv_groups = {{.block_size = 16}};
  limits.num_blocks = {20000};
  limits.max_num_seqs = limits.max_logits_rows = 128;
  limits.max_num_batched_tokens = 2048;
  limits.max_model_len = 40000;
  limits.vocab_size = 1000;
  limits.num_stages = num_stages;
  limits.max_steps_in_flight = max_steps_in_flight;
  return limits;
}

/// Launches until the pipeline is full or nothing more can be planned, then collects one step; sequences end at their
/// longest. on_plan sees every plan.
template <typename OnPlan>
void turn(SchedulerBench& bench, OnPlan on_plan) {
  while (bench.scheduler.num_steps_in_flight() < bench.runner.limits().max_steps_in_flight && bench.launch()) {
    on_plan(bench.plan);
  }
  for (Sequence* sequence : bench.collect()) {
    if (sequence->num_known_tokens() == sequence->max_num_tokens()) bench.scheduler.finish(*sequence);
  }
}

int64_t num_decodes(const StepPlan& plan) {
  return std::count_if(plan.scheduled.begin(), plan.scheduled.end(),
                       [](const ScheduledSlot& slot) { return slot.num_tokens == 1; });
}

TEST_CASE("four stages deal 64 running decodes out in parts of 16, however they became ready") {
  for (const bool at_once : {true, false}) {
    CAPTURE(at_once);
    SchedulerBench bench(pipeline_limits(4, 4), {.enable_prefix_caching = false});
    for (int64_t handle = 0; handle < 64; ++handle) bench.add(handle, 8 + (at_once ? 0 : handle), 1000);
    for (int i = 0; i < 40; ++i) turn(bench, [](const StepPlan&) {});
    for (int i = 0; i < 100; ++i) {
      turn(bench, [&](const StepPlan& plan) {
        REQUIRE(plan.num_tokens() == num_decodes(plan));
        REQUIRE(num_decodes(plan) >= 15);
        REQUIRE(num_decodes(plan) <= 17);
      });
      REQUIRE(bench.scheduler.num_steps_in_flight() == 3);
    }
  }
}

TEST_CASE("parts that drain unevenly are even again one round later, and nobody waits longer than that") {
  const int in_flight = 5;
  SchedulerBench bench(pipeline_limits(4, in_flight), {.enable_prefix_caching = false});
  for (int64_t handle = 0; handle < 60; ++handle) bench.add(handle, 8, 1000);
  for (int i = 0; i < 20; ++i) turn(bench, [](const StepPlan&) {});
  // Everyone of the next two plans ends.
  std::vector<Sequence*> ending;
  for (int i = 0; i < 2; ++i) {
    bench.launch();
    const std::vector<Sequence*> updated = bench.collect();
    ending.insert(ending.end(), updated.begin(), updated.end());
  }
  for (Sequence* sequence : ending) bench.scheduler.finish(*sequence);
  const int64_t left = 60 - static_cast<int64_t>(ending.size());
  REQUIRE(left == 36);
  std::map<int32_t, uint64_t> last_seen;
  int num_plans = 0;
  for (int i = 0; i < 100; ++i) {
    turn(bench, [&](const StepPlan& plan) {
      for (const ScheduledSlot& slot : plan.scheduled) {
        const auto seen = last_seen.find(slot.slot);
        if (seen != last_seen.end()) REQUIRE(plan.step_id - seen->second <= 2 * in_flight);
        last_seen[slot.slot] = plan.step_id;
      }
      if (++num_plans > 2 * in_flight) REQUIRE(num_decodes(plan) >= left / in_flight);
      if (num_plans > 2 * in_flight) REQUIRE(num_decodes(plan) <= left / in_flight + 1);
    });
  }
  REQUIRE(static_cast<int64_t>(last_seen.size()) == left);
}

TEST_CASE("chunks of one prompt follow one another in plans in flight, equal parts of it") {
  SchedulerBench bench(pipeline_limits(4, 4));
  bench.add(0, 1600, 4);
  for (int i = 0; i < 16; ++i) {
    REQUIRE(bench.launch());
    CHECK(bench.scheduled() == fmt::format("0:{}+100{}", i * 100, i == 15 ? "*" : ""));
    if (i >= 3) bench.collect();
  }
  for (int i = 0; i < 2; ++i) {
    bench.collect();
    CHECK_FALSE(bench.launch());  // the token that comes next is not known
  }
  bench.collect();
  CHECK(bench.launch());
  CHECK(bench.scheduled() == "0:1600+1*");
  CHECK_FALSE(bench.launch());
}

TEST_CASE("prompts that wait are dealt out over the plans; without chunks each stays whole") {
  for (const bool chunked : {true, false}) {
    CAPTURE(chunked);
    SchedulerBench bench(pipeline_limits(3, 3), {.enable_chunked_prefill = chunked});
    for (int64_t handle = 0; handle < 24; ++handle) bench.add(handle, 100, 4);
    for (int i = 0; i < 3; ++i) {
      REQUIRE(bench.launch());
      CHECK(bench.plan.num_tokens() == 200);
      CHECK(bench.plan.num_logits_rows() == 2);
    }
  }
  SchedulerBench bench(pipeline_limits(2, 2), {.enable_chunked_prefill = false});
  bench.add(0, 900, 4);
  bench.add(1, 100, 4);
  REQUIRE(bench.launch());
  CHECK(bench.scheduled() == "0:0+900*");
  REQUIRE(bench.launch());
  CHECK(bench.scheduled() == "1:0+100*");
}

TEST_CASE("a lone long prompt is spread over the plans and holds no decode up") {
  SchedulerBench bench(pipeline_limits(4, 4), {.enable_prefix_caching = false});
  for (int64_t handle = 0; handle < 64; ++handle) bench.add(handle, 8, 1000);
  for (int i = 0; i < 40; ++i) turn(bench, [](const StepPlan&) {});
  bench.add(64, 30000, 4);
  int64_t num_prompt_tokens = 0, num_plans = 0;
  while (num_prompt_tokens < 30000) {
    turn(bench, [&](const StepPlan& plan) {
      if (num_prompt_tokens == 30000) return;
      REQUIRE(num_decodes(plan) >= 15);
      REQUIRE(num_decodes(plan) <= 17);
      const int64_t chunk = plan.num_tokens() - num_decodes(plan);
      if (num_prompt_tokens + chunk < 30000) REQUIRE(chunk >= 1800);
      REQUIRE(chunk <= 1910);
      num_prompt_tokens += chunk;
      ++num_plans;
    });
  }
  CHECK(num_plans == 16);
}

/// A pipeline on a clock: a plan passes the stages one after the other and takes as many seconds in each as it has
/// tokens; launching and collecting take none.
class TimedPipeline final : public Runner {
 public:
  TimedPipeline(const test::FakeModel& model, const RunnerLimits& limits)
      : runner_(model, limits), free_at_s_(static_cast<size_t>(limits.num_stages), 0.0) {}

  const RunnerLimits& limits() const override { return runner_.limits(); }
  Ticket launch(const StepPlan& plan) override {
    double done_s = clock_.now_s();
    for (double& free_at_s : free_at_s_) {
      done_s = std::max(done_s, free_at_s) + static_cast<double>(plan.num_tokens());
      free_at_s = done_s;
    }
    busy_s_ += static_cast<double>(plan.num_tokens());
    done_s_.push_back(done_s);
    return runner_.launch(plan);
  }
  StepResult collect(Ticket ticket) override {
    clock_.advance(std::max(0.0, done_s_.front() - clock_.now_s()));
    done_s_.pop_front();
    return runner_.collect(ticket);
  }
  const ManualClock& clock() const { return clock_; }
  /// Share of all stages' time in which they had nothing to do.
  double bubble_fraction() const { return 1 - busy_s_ / clock_.now_s(); }

 private:
  test::FakeRunner runner_;
  ManualClock clock_;
  std::vector<double> free_at_s_;  // per stage
  std::deque<double> done_s_;
  double busy_s_ = 0;  // of one stage
};

struct Bubble {
  double measured = 0, expected = 0;
};

/// Runs requests of (prompt tokens, tokens to generate) to their end.
Bubble run(int num_stages, const std::vector<std::pair<int64_t, int64_t>>& requests) {
  const RunnerLimits limits = pipeline_limits(num_stages, num_stages);
  TimedPipeline pipeline({limits.kv_groups, limits.vocab_size, 3, 0}, limits);
  EngineOptions options;
  options.detokenize = false;
  options.clock = &pipeline.clock();
  options.scheduler.min_pipeline_tokens = 1;  // small plans cost nothing extra here
  Engine engine(pipeline, TokenDecoderFactory{}, options);
  int64_t num_submitted = 0;
  for (const auto& [num_prompt_tokens, max_tokens] : requests) {
    Request request;
    request.request_id = num_submitted++;
    request.prompt_token_ids = SchedulerBench::prompt_of(num_prompt_tokens * 7 + max_tokens, num_prompt_tokens);
    request.sampling.max_tokens = max_tokens;
    engine.submit(std::move(request));
  }
  while (engine.step()) {
  }
  REQUIRE(engine.idle());
  REQUIRE(engine.stats().num_finished == static_cast<int64_t>(requests.size()));
  CHECK(engine.stats().times.device_s == doctest::Approx(pipeline.clock().now_s()));
  const auto num_plans = static_cast<double>(engine.stats().num_steps);
  return {pipeline.bubble_fraction(), (num_stages - 1) / (num_plans + num_stages - 1)};
}

TEST_CASE("equal micro-batches leave a pipeline no more bubble than (p - 1) / (M + p - 1)") {
  for (const int num_stages : {1, 2, 3, 4}) {
    for (const int64_t num_tokens : {512, 5000, 30000}) {
      const Bubble bubble = run(num_stages, {{num_tokens, 1}});
      CAPTURE(num_stages);
      CAPTURE(num_tokens);
      CHECK(bubble.measured == doctest::Approx(bubble.expected).epsilon(0.02));
    }
  }
}

TEST_CASE("rows of all lengths leave a pipeline little more bubble than equal micro-batches would") {
  struct Load {
    int64_t longest_prompt, longest_output;
    double margin;
  };
  // Where prompts are most of the work, plans are as uneven as their arrival in the slots that become free.
  for (const Load& load : {Load{60, 300, 0.07}, Load{400, 100, 0.18}}) {
    for (const int num_stages : {1, 2, 3, 4}) {
      std::mt19937_64 random(7);
      const auto up_to = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most)); };
      std::vector<std::pair<int64_t, int64_t>> requests;
      for (int i = 0; i < 300; ++i) requests.emplace_back(up_to(load.longest_prompt), up_to(load.longest_output));
      const Bubble bubble = run(num_stages, requests);
      MESSAGE(num_stages << " stages, up to " << load.longest_prompt << " + " << load.longest_output
                         << " tokens: bubble " << bubble.measured << ", of equal micro-batches " << bubble.expected);
      CHECK(bubble.measured >= bubble.expected - 0.001);
      CHECK(bubble.measured <= bubble.expected + load.margin);
    }
  }
}

}  // namespace
}  // namespace tokenmill
