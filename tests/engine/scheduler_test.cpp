#include "engine/scheduler.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "kernels/core/error.h"
#include "tests/engine/scheduler_bench.h"

namespace tokenmill {
namespace {

using Ids = std::vector<int32_t>;

using test::SchedulerBench;
using test::small_limits;

TEST_CASE("waiting sequences enter in order of arrival and share one step's tokens") {
  SchedulerBench bench(small_limits());
  for (int64_t handle = 0; handle < 3; ++handle) bench.add(handle, 12, 4);
  const std::vector<Sequence*> first = bench.step();
  CHECK(bench.scheduled() == "0:0+12* 1:0+12* 2:0+8");
  CHECK(first.size() == 2);
  CHECK(bench.scheduler.num_running() == 3);
  CHECK(bench.scheduler.num_waiting() == 0);
  bench.step();
  CHECK(bench.scheduled() == "0:12+1~* 1:12+1~* 2:8+4*");
  bench.step();
  CHECK(bench.scheduled() == "0:13+1~* 1:13+1~* 2:12+1~*");
  CHECK(bench.scheduler.stats().num_prompt_tokens == 36);
}

TEST_CASE("a prompt longer than the budget is computed in chunks, the last with logits") {
  SchedulerBench bench(small_limits());
  bench.add(0, 70, 2);
  bench.add(1, 4, 2);
  CHECK(bench.step().empty());
  CHECK(bench.scheduled() == "0:0+32");
  CHECK(bench.step().empty());
  CHECK(bench.scheduled() == "0:32+32");
  CHECK(bench.step().size() == 2);
  CHECK(bench.scheduled() == "0:64+6* 1:0+4*");
}

TEST_CASE("without chunked prefill a prompt waits until the step has room for all of it") {
  SchedulerBench bench(small_limits(), {.enable_chunked_prefill = false});
  bench.add(0, 20, 2);
  bench.add(1, 20, 1);
  bench.add(2, 4, 1);
  bench.step();
  CHECK(bench.scheduled() == "0:0+20*");
  bench.step();
  CHECK(bench.scheduled() == "0:20+1~* 1:0+20* 2:0+4*");
}

TEST_CASE("no step has more logits rows than the runner offers") {
  RunnerLimits limits = small_limits();
  limits.max_logits_rows = 2;
  SchedulerBench bench(limits);
  for (int64_t handle = 0; handle < 3; ++handle) bench.add(handle, 3, 4);
  bench.step();
  CHECK(bench.scheduled() == "0:0+3* 1:0+3* 2:0+2");
  bench.step();
  CHECK(bench.scheduled() == "0:3+1~* 1:3+1~*");
}

TEST_CASE("a token that has not come back yet is scheduled as the last sampled one") {
  RunnerLimits limits = small_limits();
  limits.max_steps_in_flight = 3;
  SchedulerBench bench(limits);
  bench.add(0, 5, 4);
  CHECK(bench.launch());
  CHECK(bench.launch());
  CHECK(bench.scheduled() == "0:5+1~*");
  CHECK(bench.launch());
  CHECK(bench.scheduled() == "0:6+1~*");
  CHECK(bench.scheduler.num_steps_in_flight() == 3);
  CHECK_THROWS_WITH_AS(bench.scheduler.schedule(bench.plan), doctest::Contains("3 steps in flight"), Error);
  Sequence& sequence = *bench.collect().at(0);
  CHECK(sequence.num_known_tokens() == 6);
  CHECK(sequence.num_pending_tokens() == 2);
  CHECK(bench.launch());
  CHECK(bench.scheduled() == "0:7+1~*");
  bench.collect();
  // Four samples are allowed and four are known or on their way: the last is never computed.
  CHECK_FALSE(bench.launch());
}

TEST_CASE("tables grow when a position needs a block, and recycled blocks are announced") {
  RunnerLimits limits = small_limits();
  limits.num_blocks = {3};
  SchedulerBench bench(limits, {.enable_prefix_caching = false});
  bench.add(0, 15, 6);
  bench.add(1, 17, 2);
  Sequence* sequence = bench.step().at(0);
  CHECK(bench.plan.new_slots.size() == 1);  // the second's longest course does not fit beside the first's
  CHECK(bench.plan.new_slots[0].block_ids == BlockTables{{0}});
  bench.step();
  CHECK(bench.plan.grown.empty());
  bench.step();
  CHECK(bench.plan.grown == std::vector<GrownSlot>{{0, {{1}}}});
  bench.scheduler.finish(*sequence);
  CHECK(bench.scheduler.blocks().num_used_blocks() == 0);
  bench.step();
  CHECK(bench.plan.finished == Ids{0});
  CHECK(bench.plan.new_slots[0].slot == 0);
  CHECK(bench.plan.new_slots[0].block_ids == BlockTables{{0, 1}});
  CHECK(bench.plan.fresh_blocks == BlockTables{{0, 1}});
}

TEST_CASE("blocks of a finished sequence are free only when the last step that uses them has come back") {
  RunnerLimits limits = small_limits();
  limits.max_steps_in_flight = 2;
  limits.num_blocks = {1};
  SchedulerBench bench(limits);
  bench.add(0, 3, 8);
  bench.add(1, 3, 8);
  CHECK(bench.launch());
  CHECK(bench.launch());
  bench.scheduler.finish(*bench.collect().at(0));
  CHECK(bench.scheduler.num_running() == 0);
  CHECK(bench.scheduler.blocks().num_used_blocks() == 1);
  CHECK_FALSE(bench.launch());
  CHECK(bench.collect().empty());  // the token sampled after the end is dropped
  CHECK(bench.scheduler.blocks().num_used_blocks() == 0);
  CHECK(bench.launch());
  CHECK(bench.plan.finished == Ids{0});
  CHECK(bench.plan.fresh_blocks == BlockTables{{0}});
}

TEST_CASE("a waiting sequence does not overtake one that waits for blocks") {
  RunnerLimits limits = small_limits();
  limits.num_blocks = {4};
  SchedulerBench bench(limits);
  bench.add(0, 16, 17);  // 2 blocks
  bench.add(1, 16, 33);  // 3 blocks
  bench.add(2, 4, 4);    // 1 block
  bench.step();
  CHECK(bench.scheduled() == "0:0+16*");
  CHECK(bench.scheduler.num_waiting() == 2);
}

TEST_CASE("the last token needs no block") {
  RunnerLimits limits = small_limits();
  limits.num_blocks = {1};
  SchedulerBench bench(limits);
  bench.add(0, 16, 1);
  CHECK(bench.step().size() == 1);
  CHECK(bench.scheduler.refusal(16, 17) == std::nullopt);
  CHECK(bench.scheduler.refusal(16, 18) != std::nullopt);
}

TEST_CASE("a long prompt takes what decoding leaves: every running sequence gets its token in every step") {
  RunnerLimits limits = small_limits();
  limits.num_blocks = {8000};
  limits.max_model_len = 110000;
  limits.max_num_batched_tokens = 1000;
  SchedulerBench bench(limits);
  for (int64_t handle = 0; handle < 3; ++handle) bench.add(handle, 5, 200);
  bench.step();
  bench.add(7, 100000, 2);
  for (int64_t prompt_tokens = 0; prompt_tokens < 100000;) {
    bench.step();
    REQUIRE(bench.plan.scheduled.size() == 4);
    for (size_t i = 0; i < 3; ++i) {
      REQUIRE(bench.plan.scheduled[i].num_tokens == 1);
      REQUIRE(bench.plan.scheduled[i].logits_rows.size() == 1);
    }
    REQUIRE(bench.plan.num_tokens() == std::min<int64_t>(1000, 3 + 100000 - prompt_tokens));
    prompt_tokens += bench.plan.scheduled[3].num_tokens;
  }
}

TEST_CASE("prompts share a step under a threshold, as many as may be in progress") {
  SchedulerBench bench(small_limits(), {.long_prefill_token_threshold = 10, .max_num_partial_prefills = 2});
  for (int64_t handle = 0; handle < 3; ++handle) bench.add(handle, 25, 2);
  bench.step();
  CHECK(bench.scheduled() == "0:0+10 1:0+10");
  bench.step();
  CHECK(bench.scheduled() == "0:10+10 1:10+10");
  bench.step();
  CHECK(bench.scheduled() == "0:20+5* 1:20+5* 2:0+10");
}

TEST_CASE("what can never run is refused with numbers and a way out") {
  RunnerLimits limits = small_limits();
  limits.num_blocks = {3};
  const Scheduler scheduler(limits, {.enable_chunked_prefill = false});
  const auto refusal = [&](int64_t num_prompt_tokens, int64_t max_num_tokens) {
    const std::optional<FieldError> error = scheduler.refusal(num_prompt_tokens, max_num_tokens);
    return error ? error->field + ": " + error->message : "";
  };
  CHECK(refusal(30, 49) == "");
  CHECK(refusal(256, 257) ==
        "prompt: prompt has 256 tokens; at most 255 fit in --max-model-len 256 with one token to generate; shorten the "
        "prompt or raise --max-model-len");
  CHECK(refusal(33, 40) ==
        "prompt: prompt has 33 tokens; without chunked prefill at most --max-num-batched-tokens 32 are allowed; raise "
        "that "
        "or set --enable-chunked-prefill true");
  CHECK(refusal(30, 50) ==
        "max_tokens: prompt of 30 tokens and up to 20 new ones need 4 KV blocks of 16 tokens, there are 3; lower "
        "max_tokens "
        "or give the KV cache more memory (--gpu-memory-utilization, --kv-cache-memory-bytes)");
  const Scheduler chunked(limits, {});
  CHECK(chunked.refusal(49, 60)->message ==
        "prompt of 49 tokens and up to 11 new ones need 4 KV blocks of 16 tokens, there are 3; shorten the prompt or "
        "give "
        "the KV cache more memory (--gpu-memory-utilization, --kv-cache-memory-bytes)");
}

TEST_CASE("a rewound sequence goes on from what is left and drops what was on its way") {
  RunnerLimits limits = small_limits();
  limits.max_steps_in_flight = 3;
  SchedulerBench bench(limits, {}, /*allow_rewinds=*/true);
  bench.add(0, 5, 8);
  CHECK(bench.launch());
  CHECK(bench.launch());
  CHECK(bench.launch());
  bench.collect();
  Sequence& sequence = *bench.collect().at(0);
  const Ids tokens = sequence.token_ids();
  REQUIRE(tokens.size() == 7);
  bench.scheduler.rewind(sequence, 1);
  CHECK(sequence.num_known_tokens() == 6);
  CHECK(sequence.num_pending_tokens() == 0);
  CHECK(bench.launch());
  CHECK(bench.scheduled() == "0:5+1*");
  CHECK(bench.collect().empty());
  CHECK(bench.collect().size() == 1);
  CHECK(sequence.token_ids() == tokens);  // the same history gives the same sample again
  CHECK_THROWS_WITH_AS(bench.scheduler.rewind(sequence, 3), doctest::Contains("rewind by 3 of 2 generated tokens"),
                       Error);
}

TEST_CASE("a result that is not the oldest step's, or lacks a slot, is caught") {
  SchedulerBench bench(small_limits());
  bench.add(0, 5, 8);
  CHECK(bench.launch());
  CHECK_THROWS_WITH_AS(bench.scheduler.update({.step_id = 7}),
                       doctest::Contains("result of step 7, oldest in flight 1"), Error);
  CHECK_THROWS_WITH_AS(bench.scheduler.update({.step_id = 1}),
                       doctest::Contains("does not bring what slot 0 was scheduled for"), Error);
}

}  // namespace
}  // namespace tokenmill
