#include "engine/step_input.h"

#include <doctest/doctest.h>

#include "kernels/core/error.h"
#include "tests/engine/staging.h"
#include "tests/support/backends.h"

namespace tokenmill {
namespace {

using test::read;
using Ids = std::vector<int32_t>;
using Longs = std::vector<int64_t>;

RunnerLimits limits() {
  RunnerLimits limits;
  limits.kv_groups = {{.block_size = 16}, {.kind = KvSpec::Kind::kSlidingWindow, .window = 16, .block_size = 32}};
  limits.num_blocks = {40, 40};
  limits.max_num_seqs = 4;
  limits.max_num_batched_tokens = 12;
  limits.max_logits_rows = 4;
  limits.max_scored_rows = 6;
  limits.max_logprobs = 3;
  limits.max_model_len = 100;
  limits.vocab_size = 50;
  return limits;
}

/// Slot 2 with a prompt of 40, computed up to 20; slot 0 decodes its 19th token.
std::vector<SlotState> slots() {
  std::vector<SlotState> slots(4);
  for (int32_t i = 0; i < 40; ++i) slots[2].token_ids.push_back(i);
  slots[2].num_prompt_tokens = 40;
  slots[2].num_prompt_logprobs = 2;
  slots[2].block_ids = {{7, 9, 4}, {3, 5}};
  for (int32_t i = 0; i < 19; ++i) slots[0].token_ids.push_back(49 - i);
  slots[0].num_prompt_tokens = 10;
  slots[0].num_logprobs = 3;
  slots[0].lists_logprobs = true;
  slots[0].block_ids = {{30, 31}, {32}};
  return slots;
}

StepPlan plan() {
  StepPlan plan;
  plan.step_id = 8;
  plan.scheduled.resize(2);
  plan.scheduled[0] = {.slot = 2, .start = 30, .num_tokens = 5, .scored_begin = 1, .num_scored = 4};
  plan.scheduled[1] = {.slot = 0, .start = 18, .num_tokens = 1, .logits_rows = {0}};
  plan.scheduled[1].constraints = {{.forced_token_id = 6, .masked_token_ids = {1, 2}}};
  return plan;
}

TEST_CASE("a step is flattened in the plan's order: ids, positions, lengths, places in the caches") {
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    StepInput input(*ops, limits());
    const StepTensors step = input.stage(plan(), slots());
    CHECK(read<int32_t>(*ops, step.token_ids) == Ids{30, 31, 32, 33, 34, 31});
    CHECK(read<int64_t>(*ops, step.positions) == Longs{30, 31, 32, 33, 34, 18});
    CHECK(read<int32_t>(*ops, step.cu_seqlens) == Ids{0, 5, 6});
    CHECK(read<int64_t>(*ops, step.seq_lens) == Longs{35, 19});
    REQUIRE(step.num_groups == 2);
    CHECK(read<int64_t>(*ops, step.groups[0].slot_mapping) ==
          Longs{9 * 16 + 14, 9 * 16 + 15, 4 * 16, 4 * 16 + 1, 4 * 16 + 2, 31 * 16 + 2});
    CHECK(read<int64_t>(*ops, step.groups[1].slot_mapping) ==
          Longs{3 * 32 + 30, 3 * 32 + 31, 5 * 32, 5 * 32 + 1, 5 * 32 + 2, 32 * 32 + 18});
    const Ids table = read<int32_t>(*ops, step.groups[0].block_table);
    CHECK(step.groups[0].block_table.cols() == 7);
    CHECK(Ids(table.begin(), table.begin() + 3) == Ids{7, 9, 4});
    CHECK(Ids(table.begin() + 7, table.begin() + 9) == Ids{30, 31});
  }
}

/// From begin on.
template <typename T>
std::vector<T> behind(const std::vector<T>& values, int64_t begin) {
  return {values.begin() + begin, values.end()};
}

TEST_CASE("a padded step ends in tokens of no sequence, sequences without tokens and greedy rows of no slot") {
  StepPlan decode = plan();
  decode.scheduled.erase(decode.scheduled.begin());
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    StepInput input(*ops, limits());
    for (const StepPlan& plan : {plan(), decode}) {  // what the larger step left behind must not show in the smaller one
      const StepTensors step = input.stage(plan, slots(), {.num_tokens = 8, .num_sequences = 4, .num_rows = 3});
      const auto tokens = static_cast<int32_t>(plan.num_tokens());
      const auto sequences = static_cast<int64_t>(plan.scheduled.size());
      CHECK(behind(read<int32_t>(*ops, step.token_ids), tokens) == Ids(8 - tokens, 0));
      CHECK(behind(read<int64_t>(*ops, step.positions), tokens) == Longs(8 - tokens, 0));
      for (const int group : {0, 1})
        CHECK(behind(read<int64_t>(*ops, step.groups[group].slot_mapping), tokens) == Longs(8 - tokens, -1));
      CHECK(behind(read<int32_t>(*ops, step.cu_seqlens), sequences) == Ids(5 - sequences, tokens));
      CHECK(behind(read<int64_t>(*ops, step.seq_lens), sequences) == Longs(4 - sequences, 0));
      CHECK(behind(read<int32_t>(*ops, step.rows.tokens), 1) == Ids{0, 0});
      CHECK(behind(read<int32_t>(*ops, step.rows.slots), 1) == Ids{4, 4});
      CHECK(behind(read<int32_t>(*ops, step.rows.forced_ids), 1) == Ids{-1, -1});
      CHECK(behind(read<int32_t>(*ops, step.rows.masked_offsets), 1) == Ids{2, 2, 2});
    }
  }
}

TEST_CASE("a token that has not been collected is named by its slot") {
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    StepInput input(*ops, limits());
    StepPlan decode = plan();
    decode.scheduled = {
        {.slot = 0, .start = 19, .num_tokens = 1, .source = TokenSource::kLastSampled, .logits_rows = {0}}};
    CHECK(read<int32_t>(*ops, input.stage(decode, slots()).token_ids) == Ids{-1});
    decode.scheduled[0].source = TokenSource::kLiteral;
    CHECK_THROWS_WITH_AS(input.stage(decode, slots()), doctest::Contains("slot 0 has 19 tokens, step 8 wants [19, 20)"),
                         Error);
  }
}

TEST_CASE("logits rows carry their slots, constraints and what they report; scored ones the prompt's next tokens") {
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    StepInput input(*ops, limits());
    const StepTensors step = input.stage(plan(), slots());
    CHECK(read<int32_t>(*ops, step.rows.tokens) == Ids{5});
    CHECK(read<int32_t>(*ops, step.rows.slots) == Ids{0});
    CHECK(read<int32_t>(*ops, step.rows.forced_ids) == Ids{6});
    CHECK(read<int32_t>(*ops, step.rows.masked_offsets) == Ids{0, 2});
    CHECK(read<int32_t>(*ops, step.rows.masked_ids.slice_rows(0, 2)) == Ids{1, 2});
    CHECK(read<int32_t>(*ops, step.sampled.num_top) == Ids{3});
    CHECK(read<int32_t>(*ops, step.sampled.listed_slots) == Ids{0});
    CHECK(read<int32_t>(*ops, step.scored_tokens) == Ids{1, 2, 3, 4});
    CHECK(read<int32_t>(*ops, step.scored.token_ids) == Ids{32, 33, 34, 35});
    CHECK(read<int32_t>(*ops, step.scored.num_top) == Ids{2, 2, 2, 2});
    CHECK(read<int32_t>(*ops, step.scored.listed_slots) == Ids{-1, -1, -1, -1});

    StepPlan without = plan();
    without.scheduled[0].num_scored = 0;
    without.scheduled[1].constraints.clear();
    std::vector<SlotState> silent = slots();
    silent[0].num_logprobs = -1;
    const StepTensors plain = input.stage(without, silent);
    CHECK(read<int32_t>(*ops, plain.rows.forced_ids) == Ids{-1});
    CHECK(read<int32_t>(*ops, plain.rows.masked_offsets) == Ids{0, 0});
    CHECK_FALSE(plain.sampled.num_top.defined());
    CHECK(plain.scored_tokens.num_elements() == 0);
  }
}

TEST_CASE("lists of scored positions are rows of their own, behind those of the most likely tokens") {
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    StepInput input(*ops, limits());
    StepPlan listed = plan();
    listed.scheduled[0].num_scored = 2;
    listed.scheduled[0].scored_lists = {4, -1, 5, 6};
    listed.scheduled.push_back({.slot = 1, .start = 0, .num_tokens = 2, .scored_begin = 0, .num_scored = 1});
    listed.scheduled[2].scored_lists = {7, 8, 9};
    std::vector<SlotState> states = slots();
    states[1].token_ids = {20, 21, 22};
    states[1].num_prompt_tokens = 3;
    states[1].block_ids = {{11}, {12}};
    const StepOutputShape shape = StepInput::output_shape(listed, states);
    CHECK(shape.num_scored == 5);
    CHECK(shape.num_prompt_logprobs == 3);
    CHECK(shape.list_width == 3);
    const StepTensors step = input.stage(listed, states);
    CHECK(read<int32_t>(*ops, step.scored_tokens) == Ids{1, 2, 1, 2, 6});
    CHECK(read<int32_t>(*ops, step.scored.token_ids) == Ids{32, 33, 32, 33, 21});
    CHECK(read<int32_t>(*ops, step.scored.num_top) == Ids{2, 2, 2, 2, 3});
    CHECK(read<int32_t>(*ops, step.scored.listed_slots) == Ids{-1, -1, 2, 3, 4});
    CHECK(step.scored_lists.cols() == 3);
    const Ids lists = read<int32_t>(*ops, step.scored_lists);
    CHECK(Ids(lists.begin() + 6, lists.begin() + 8) == Ids{4, 0});
    CHECK(Ids(lists.begin() + 9, lists.begin() + 11) == Ids{5, 6});
    CHECK(Ids(lists.begin() + 12, lists.end()) == Ids{7, 8, 9});
    CHECK_FALSE(input.stage(plan(), slots()).scored_lists.defined());
  }
}

TEST_CASE("a step's shortlist is the largest of its rows, and none when one needs whole logits") {
  Ops& ops = *test::backends().front();
  StepInput input(ops, limits());
  const auto shortlist = [&](int64_t of_prompt, int64_t of_decode, bool forced) {
    StepPlan wanted = plan();
    wanted.scheduled[0].logits_rows = {4};
    if (!forced) wanted.scheduled[1].constraints.clear();
    std::vector<SlotState> state = slots();
    state[2].shortlist = of_prompt;
    state[0].shortlist = of_decode;
    return input.stage(wanted, state).rows.shortlist;
  };
  CHECK(shortlist(1, 1, false) == 1);
  CHECK(shortlist(1, 58, false) == 58);
  CHECK(shortlist(20, 1, false) == 20);
  CHECK(shortlist(20, 0, false) == 0);
  CHECK(shortlist(20, 0, true) == 20);  // whatever a forced row's parameters are
  CHECK(shortlist(0, 1, true) == 0);
}

TEST_CASE("the shape of a step's output follows what its rows report") {
  const StepOutputShape shape = StepInput::output_shape(plan(), slots());
  CHECK(shape.num_rows == 1);
  CHECK(shape.num_scored == 4);
  CHECK(shape.num_logprobs == 3);
  CHECK(shape.num_prompt_logprobs == 2);
  StepPlan prefill = plan();
  prefill.scheduled.resize(1);
  prefill.scheduled[0].num_scored = 0;
  const StepOutputShape nothing = StepInput::output_shape(prefill, slots());
  CHECK(nothing.num_rows == 0);
  CHECK(nothing.num_logprobs == -1);
  CHECK(nothing.num_prompt_logprobs == -1);
}

TEST_CASE("a plan beyond the limits, or beyond a slot's blocks, is refused") {
  Ops& ops = *test::backends().front();
  StepInput input(ops, limits());
  StepPlan wide = plan();
  wide.scheduled[0].start = 0;
  wide.scheduled[0].num_tokens = 12;
  CHECK_THROWS_WITH_AS(input.stage(wide, slots()), doctest::Contains("step 8: 13 tokens"), Error);
  std::vector<SlotState> few = slots();
  few[2].block_ids[0] = {7, 9};
  CHECK_THROWS_WITH_AS(input.stage(plan(), few), doctest::Contains("slot 2 has 2 blocks, needs 3"), Error);
  StepPlan last = plan();  // the token behind the prompt's last one is not the prompt's
  last.scheduled[0] = {.slot = 2, .start = 38, .num_tokens = 2, .scored_begin = 0, .num_scored = 2};
  CHECK_THROWS_WITH_AS(input.stage(last, slots()), doctest::Contains("scores position 39 of a prompt of 40"), Error);
}

TEST_CASE("what staging takes grows with the limits, on both sides the same") {
  RunnerLimits more = limits();
  more.max_num_batched_tokens += 64;
  // An id, a position, and a place in each of two groups.
  CHECK(StepInput::device_bytes(more) - StepInput::device_bytes(limits()) == 64 * (4 + 8 + 2 * 8));
}

}  // namespace
}  // namespace tokenmill
