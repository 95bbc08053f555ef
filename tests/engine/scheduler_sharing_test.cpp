// What sequences share and take from each other: prefixes, forks, windows, preemption.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/engine/scheduler_bench.h"

namespace tokenmill {
namespace {

using test::Ids;
using test::SchedulerBench;
using test::small_limits;

Ids behind(Ids opening, int64_t num_more, int32_t first) {
  for (int64_t i = 0; i < num_more; ++i) opening.push_back(first + static_cast<int32_t>(i));
  return opening;
}

TEST_CASE("a sequence shares what another one computes in the same step") {
  SchedulerBench bench(small_limits());
  const Ids opening = SchedulerBench::prompt_of(1, 16);
  bench.add(0, behind(opening, 4, 500), 3);
  bench.add(1, behind(opening, 6, 700), 3);
  bench.step();
  CHECK(bench.scheduled() == "0:0+20* 1:16+6*");
  CHECK(bench.plan.new_slots[1].block_ids == BlockTables{{0, 2}});
  CHECK(bench.scheduler.stats().num_hit_tokens == 16);
  CHECK(bench.scheduler.stats().num_queried_tokens == 42);
  CHECK(bench.scheduler.stats().num_prompt_tokens == 42);
  CHECK(bench.scheduler.stats().num_computed_prompt_tokens == 26);
  CHECK(bench.scheduler.stats().sum_kv_shared_blocks == 1);
  CHECK(bench.scheduler.stats().sum_kv_waste == doctest::Approx((12.0 + 10.0) / 48.0));
  CHECK(bench.run().size() == 2);
}

TEST_CASE("a prefix that is being computed is waited for, others overtake, and it is computed once") {
  SchedulerBench bench(small_limits());  // 32 tokens a step
  const Ids opening = SchedulerBench::prompt_of(1, 64);
  bench.add(0, behind(opening, 4, 500), 2);
  bench.add(1, behind(opening, 4, 600), 2);
  bench.add(2, 5, 2);
  bench.step();
  CHECK(bench.scheduled() == "0:0+32");
  bench.step();
  CHECK(bench.scheduled() == "0:32+32");  // no tokens are left for the third
  bench.step();
  CHECK(bench.scheduled() == "0:64+4* 1:64+4* 2:0+5*");
  CHECK(bench.scheduler.stats().num_computed_prompt_tokens == 64 + 4 + 4 + 5);
  CHECK(bench.run().size() == 3);

  SchedulerBench narrow(small_limits(), {.long_prefill_token_threshold = 16});
  narrow.add(0, behind(opening, 4, 500), 2);
  narrow.add(1, behind(opening, 4, 600), 2);
  narrow.add(2, 5, 2);
  narrow.step();
  CHECK(narrow.scheduled() == "0:0+16 1:0+5*");  // handle 2 overtakes handle 1, which would need block 1 now
  CHECK(narrow.scheduler.num_waiting() == 1);
  CHECK(narrow.run().size() == 3);
  CHECK(narrow.scheduler.stats().num_computed_prompt_tokens == 64 + 4 + 4 + 5);
}

TEST_CASE("a whole cached prompt is computed in its last token only and its blocks are not overwritten") {
  for (const int64_t num_tokens : {31, 32, 33}) {
    for (const int64_t chunk : {32, 16, 15}) {
      CAPTURE(num_tokens);
      CAPTURE(chunk);
      RunnerLimits limits = small_limits();
      limits.max_num_batched_tokens = chunk;
      SchedulerBench bench(limits);
      const Ids prompt = SchedulerBench::prompt_of(3, num_tokens);
      bench.add(0, prompt, 5);
      const auto first = bench.run();
      const int64_t computed = bench.scheduler.stats().num_computed_prompt_tokens;
      bench.add(1, prompt, 5);
      bench.step();
      CHECK(bench.plan.scheduled[0].num_tokens == (num_tokens == 31 ? 15 : 1));
      const bool copies = num_tokens == 32;
      CHECK(bench.plan.copies.size() == (copies ? 1 : 0));
      const auto second = bench.run();
      CHECK(bench.scheduler.stats().num_computed_prompt_tokens - computed == (num_tokens == 31 ? 15 : 1));
      CHECK(first[0].second == bench.alone(prompt, 5));
      CHECK(second[0].second == first[0].second);
      bench.add(2, prompt, 5);  // the first one's blocks still hold what they held
      CHECK(bench.run()[0].second == first[0].second);
    }
  }
}

TEST_CASE("only equal salts share, and the cache can be switched off") {
  for (const bool enabled : {true, false}) {
    SchedulerBench bench(small_limits(), {.enable_prefix_caching = enabled});
    const Ids prompt = SchedulerBench::prompt_of(3, 24);
    int64_t hits = 0;
    for (const auto& [salt, expected] : std::vector<std::pair<std::string, int64_t>>{
             {"s1", 0}, {"s1", 16}, {"s2", 0}, {"", 0}, {"s2", 16}, {"", 16}, {"s1", 16}}) {
      CAPTURE(salt);
      bench.add(0, prompt, 3, salt);
      CHECK(bench.run()[0].second == bench.alone(prompt, 3));
      CHECK(bench.scheduler.stats().num_hit_tokens - hits == (enabled ? expected : 0));
      hits = bench.scheduler.stats().num_hit_tokens;
    }
  }
}

TEST_CASE("samples enter when the first has computed the prompt, share it and copy its last block") {
  for (const bool caching : {true, false}) {
    for (const int64_t num_tokens : {17, 20, 32}) {
      CAPTURE(num_tokens);
      SchedulerBench bench(small_limits(), {.enable_prefix_caching = caching});
      const Ids prompt = SchedulerBench::prompt_of(3, num_tokens);
      bench.add_samples(0, prompt, 6, 3);
      CHECK(bench.scheduler.num_waiting() == 3);
      bench.step();
      CHECK(bench.scheduled() == fmt::format("0:0+{}*", num_tokens));
      bench.step();
      CHECK(bench.scheduled() == fmt::format("0:{0}+1~* 1:{1}+1* 2:{1}+1*", num_tokens, num_tokens - 1));
      CHECK(bench.plan.copies.size() == (num_tokens == 17 ? 0 : 1));
      CHECK(bench.scheduler.stats().num_computed_prompt_tokens == num_tokens + 2);
      CHECK(bench.scheduler.stats().num_prompt_tokens == num_tokens);
      CHECK(bench.scheduler.blocks().num_shared_blocks() == 2);
      const auto ended = bench.run();
      REQUIRE(ended.size() == 3);
      for (uint64_t key = 0; key < 3; ++key) CHECK(ended[key].second == bench.alone(prompt, 6, key));
      CHECK(bench.scheduler.blocks().num_used_blocks() == 0);
    }
  }
}

TEST_CASE("samples whose first one is gone find the prompt in the cache, or compute it") {
  for (const bool caching : {true, false}) {
    RunnerLimits limits = small_limits();
    limits.max_num_seqs = 1;
    SchedulerBench bench(limits, {.enable_prefix_caching = caching});
    const Ids prompt = SchedulerBench::prompt_of(3, 20);
    bench.add_samples(0, prompt, 2, 2);
    bench.add(9, 4, 2);  // came later
    const auto ended = bench.run();
    CHECK(ended[0].second == bench.alone(prompt, 2, 0));
    CHECK(ended[1].second == bench.alone(prompt, 2, 1));
    CHECK(ended[2].first == 9);
    CHECK(bench.scheduler.stats().num_computed_prompt_tokens == 20 + 4 + (caching ? 4 : 20));
  }
}

TEST_CASE("samples can be ended before they have entered") {
  SchedulerBench bench(small_limits());
  bench.add_samples(0, SchedulerBench::prompt_of(0, 40), 4, 2);
  bench.launch();  // 32 of 40
  bench.collect();
  bench.launch();
  Sequence& first = *bench.collect().at(0);
  bench.scheduler.finish(first);
  CHECK(bench.scheduler.num_waiting() == 1);
  bench.step();  // the second
  CHECK(bench.scheduler.num_running() == 1);
  CHECK(bench.run().size() == 1);
}

TEST_CASE("when blocks run out the youngest gives its own up, and its tokens come out the same") {
  RunnerLimits limits = small_limits();
  limits.num_blocks = {4};
  SchedulerBench bench(limits, {.first_length_guess = 0, .watermark = 0});
  bench.add(0, 16, 30);  // 3 blocks at the end
  bench.add(1, 16, 30);
  bench.step();
  CHECK(bench.scheduled() == "0:0+16* 1:0+16*");
  std::vector<int32_t> preempted;
  std::vector<std::pair<int64_t, Ids>> ended;
  while (bench.scheduler.num_running() + bench.scheduler.num_waiting() > 0) {
    for (Sequence* sequence : bench.step()) {
      if (sequence->num_known_tokens() < sequence->max_num_tokens()) continue;
      if (sequence->handle() == 1) CHECK(sequence->num_preemptions() == 1);
      ended.emplace_back(sequence->handle(), sequence->token_ids());
      bench.scheduler.finish(*sequence);
    }
    preempted.insert(preempted.end(), bench.plan.preempted.begin(), bench.plan.preempted.end());
    bench.scheduler.audit();
  }
  CHECK(preempted == std::vector<int32_t>{1});
  CHECK(bench.scheduler.stats().num_preemptions == 1);
  CHECK(bench.scheduler.stats().num_recomputed_tokens > 0);
  REQUIRE(ended.size() == 2);
  for (const auto& [handle, tokens] : ended) {
    CHECK(tokens == bench.alone(SchedulerBench::prompt_of(handle, 16), 30));
  }
}

TEST_CASE("a pool that holds one sequence serves them all, one after the other") {
  RunnerLimits limits = small_limits();
  limits.num_blocks = {4};
  limits.max_steps_in_flight = 1;
  SchedulerBench bench(limits, {.first_length_guess = 0, .watermark = 0});
  for (int64_t handle = 0; handle < 5; ++handle) bench.add(handle, 33, 32);  // 4 blocks each
  const auto ended = bench.run();
  REQUIRE(ended.size() == 5);
  for (const auto& [handle, tokens] : ended) {
    CHECK(tokens == bench.alone(SchedulerBench::prompt_of(handle, 33), 32));
  }
}

TEST_CASE("a window gives its blocks back while the sequence runs, and a pool of the window's size is enough") {
  RunnerLimits limits = small_limits();
  limits.kv_groups = {{.kind = KvSpec::Kind::kSlidingWindow, .window = 32, .block_size = 16}};
  limits.num_blocks = {3};
  SchedulerBench bench(limits);
  CHECK(bench.scheduler.refusal(200, 250) == std::nullopt);
  bench.add(0, 200, 40);
  std::vector<ShrunkSlot> shrunk;
  int64_t most_blocks = 0;
  std::vector<std::pair<int64_t, Ids>> ended;
  while (bench.scheduler.num_running() + bench.scheduler.num_waiting() > 0) {
    REQUIRE(bench.launch());
    shrunk.insert(shrunk.end(), bench.plan.shrunk.begin(), bench.plan.shrunk.end());
    most_blocks = std::max(most_blocks, bench.scheduler.blocks().num_used_blocks());
    for (Sequence* sequence : bench.collect()) {
      if (sequence->num_known_tokens() < sequence->max_num_tokens()) continue;
      ended.emplace_back(0, sequence->token_ids());
      bench.scheduler.finish(*sequence);
    }
  }
  CHECK(most_blocks == 3);
  CHECK(shrunk.size() > 5);
  CHECK(shrunk.back() == ShrunkSlot{0, {12}});  // positions 207 on: the last one starts at 238
  CHECK(ended.at(0).second == bench.alone(SchedulerBench::prompt_of(0, 200), 40));
}

}  // namespace
}  // namespace tokenmill
