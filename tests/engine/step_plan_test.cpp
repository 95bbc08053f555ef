#include "engine/step_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "kernels/core/error.h"

namespace tokenmill {
namespace {

using Random = std::mt19937_64;

std::vector<int32_t> random_ids(Random& random, size_t max_size) {
  std::vector<int32_t> ids(random() % (max_size + 1));
  for (int32_t& id : ids) id = static_cast<int32_t>(random());
  return ids;
}

std::vector<std::vector<int32_t>> random_lists(Random& random) {
  std::vector<std::vector<int32_t>> lists(random() % 3);
  for (std::vector<int32_t>& list : lists) list = random_ids(random, 3);
  return lists;
}

SlotSampling random_sampling(Random& random) {
  SlotSampling sampling{0.5f, 0.25f, 0.125f, static_cast<int32_t>(random()), random()};
  sampling.presence_penalty = 1.5f;
  sampling.frequency_penalty = -0.5f;
  sampling.repetition_penalty = 1.25f;
  sampling.only_biased = random() % 2 == 0;
  for (const int32_t id : random_ids(random, 3)) sampling.bias.push_back({id, static_cast<float>(random() % 100)});
  sampling.num_logprobs = static_cast<int32_t>(random());
  sampling.logprob_token_ids = random_ids(random, 3);
  sampling.num_prompt_logprobs = static_cast<int32_t>(random());
  return sampling;
}

StepPlan random_plan(Random& random) {
  StepPlan plan;
  plan.step_id = random();
  plan.dummy = random() % 2 == 0;
  plan.stop = random() % 2 == 0;
  for (size_t i = random() % 3; i > 0; --i)
    plan.shrunk.push_back({static_cast<int32_t>(random()), random_ids(random, 2)});
  plan.finished = random_ids(random, 3);
  plan.preempted = random_ids(random, 2);
  for (size_t i = random() % 3; i > 0; --i)
    plan.sampled.push_back({static_cast<int32_t>(random()), static_cast<int64_t>(random()), random_ids(random, 2)});
  plan.fresh_blocks = random_lists(random);
  for (size_t i = random() % 3; i > 0; --i) {
    GroupCopies& group = plan.copies.emplace_back();
    group.group = static_cast<int32_t>(random());
    group.copies.resize(random() % 3);
    for (BlockCopy& copy : group.copies) copy = {static_cast<int32_t>(random()), static_cast<int32_t>(random())};
  }
  for (size_t i = random() % 3; i > 0; --i) {
    plan.new_slots.push_back({static_cast<int32_t>(random()), random_ids(random, 5), static_cast<int64_t>(random()),
                              random_sampling(random), random_lists(random)});
  }
  for (size_t i = random() % 3; i > 0; --i)
    plan.grown.push_back({static_cast<int32_t>(random()), random_lists(random)});
  for (size_t i = random() % 4; i > 0; --i) {
    ScheduledSlot& slot = plan.scheduled.emplace_back();
    slot = {static_cast<int32_t>(random()), static_cast<int64_t>(random()), static_cast<int32_t>(random() % 100),
            random() % 2 == 0 ? TokenSource::kLiteral : TokenSource::kLastSampled, random_ids(random, 2)};
    if (random() % 2 == 0) {
      for (size_t r = 0; r < slot.logits_rows.size(); ++r) {
        slot.constraints.push_back({static_cast<int32_t>(random()), random_ids(random, 3)});
      }
    }
    slot.scored_begin = static_cast<int32_t>(random());
    slot.num_scored = static_cast<int32_t>(random() % 4);
    for (size_t i = random() % 3 * static_cast<size_t>(slot.num_scored); i > 0; --i)
      slot.scored_lists.push_back(static_cast<int32_t>(random()));
    slot.hidden_begin = static_cast<int32_t>(random() % 4);
    slot.num_hidden = static_cast<int32_t>(random() % 4);
    slot.hidden_ends = random() % 2 == 0;
  }
  return plan;
}

TEST_CASE("a plan comes back from its bytes as it was") {
  Random random(1);
  CHECK(deserialize_step_plan(serialize(StepPlan{})) == StepPlan{});
  for (int i = 0; i < 500; ++i) {
    const StepPlan plan = random_plan(random);
    REQUIRE(deserialize_step_plan(serialize(plan)) == plan);
  }
}

TEST_CASE("the first byte is the format's version and another one is refused by number") {
  std::vector<std::byte> bytes = serialize(StepPlan{});
  CHECK(bytes.front() == std::byte{6});
  bytes.front() = std::byte{7};
  CHECK_THROWS_WITH_AS(deserialize_step_plan(bytes), doctest::Contains("version at byte 1 is 7; this program knows 6"),
                       Error);
}

TEST_CASE("every truncation and every added byte is refused") {
  Random random(2);
  for (int i = 0; i < 20; ++i) {
    std::vector<std::byte> bytes = serialize(random_plan(random));
    for (size_t n = 0; n < bytes.size(); ++n) {
      REQUIRE_THROWS_AS(deserialize_step_plan(std::span(bytes).first(n)), Error);
    }
    bytes.push_back(std::byte{0});
    REQUIRE_THROWS_WITH_AS(deserialize_step_plan(bytes), doctest::Contains("has 1 more bytes"), Error);
  }
}

TEST_CASE("a count larger than the bytes is refused before memory is taken for it") {
  std::vector<std::byte> bytes = serialize(StepPlan{});
  for (int i = 0; i < 4; ++i) bytes[10 + static_cast<size_t>(i)] = std::byte{0xff};  // number of shrunk slots
  CHECK_THROWS_WITH_AS(deserialize_step_plan(bytes), doctest::Contains("shrunk at byte 14 counts 4294967295 items"),
                       Error);
}

TEST_CASE("mutated bytes are refused or are exactly the bytes of another plan") {
  Random random(3);
  int refused = 0, accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes = serialize(random_plan(random));
    for (size_t n = 1 + random() % 3; n > 0; --n) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (random() % 4 == 0) bytes.erase(bytes.begin() + static_cast<int64_t>(random() % bytes.size()));
    try {
      const StepPlan plan = deserialize_step_plan(bytes);
      REQUIRE(serialize(plan) == bytes);
      ++accepted;
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::kInternal);
      ++refused;
    }
  }
  CHECK(refused > 1000);
  CHECK(accepted > 1000);
}

TEST_CASE("constraints of another number of rows than the logits rows are refused") {
  StepPlan plan;
  plan.scheduled.push_back({0, 0, 5, TokenSource::kLiteral, {4}, {{7, {1, 2}}}});
  CHECK(deserialize_step_plan(serialize(plan)) == plan);
  plan.scheduled[0].logits_rows = {3, 4};
  CHECK_THROWS_WITH_AS(deserialize_step_plan(serialize(plan)), doctest::Contains("are of 1 logits rows; there are 2"),
                       Error);
}

TEST_CASE("lists of scored positions are as wide as one another") {
  StepPlan plan;
  plan.scheduled.resize(1);
  plan.scheduled[0].num_scored = 2;
  plan.scheduled[0].scored_lists = {1, 2, 3, -1};
  CHECK(plan.scheduled[0].list_width() == 2);
  CHECK(deserialize_step_plan(serialize(plan)) == plan);
  plan.scheduled[0].scored_lists.pop_back();
  CHECK_THROWS_WITH_AS(deserialize_step_plan(serialize(plan)), doctest::Contains("has 3 ids for 2 positions"), Error);
  plan.scheduled[0].num_scored = 0;
  CHECK_THROWS_WITH_AS(deserialize_step_plan(serialize(plan)), doctest::Contains("has 3 ids for 0 positions"), Error);
}

TEST_CASE("a plan counts its tokens and its logits rows") {
  StepPlan plan;
  plan.scheduled = {{0, 0, 5, TokenSource::kLiteral, {4}, {}, 1, 3},
                    {3, 9, 1, TokenSource::kLastSampled, {0}},
                    {1, 0, 7, {}, {}, {}, 0, 7}};
  CHECK(plan.num_tokens() == 13);
  CHECK(plan.num_logits_rows() == 2);
}

}  // namespace
}  // namespace tokenmill
