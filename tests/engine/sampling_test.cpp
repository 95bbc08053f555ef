#include "engine/sampling.h"

#include <doctest/doctest.h>

#include <limits>
#include <set>

namespace tokenmill {
namespace {

TEST_CASE("a temperature below 1e-5 is greedy and neutralizes the filters") {
  for (const double temperature : {0.0, 1e-40, 9.99e-6}) {
    const SamplingParams greedy = normalized({.temperature = temperature, .top_p = 0.5, .top_k = 7, .min_p = 0.25});
    CHECK(greedy == SamplingParams{.temperature = 0});
  }
  CHECK(normalized({.temperature = 1e-5, .top_p = 0.5}) == SamplingParams{.temperature = 0.01, .top_p = 0.5});
  CHECK(normalized({.temperature = 0.00999}).temperature == 0.01);
  CHECK(normalized({.temperature = 0.02, .top_k = -1}) == SamplingParams{.temperature = 0.02, .top_k = 0});
}

TEST_CASE("what one field implies for another is written out") {
  const SamplingParams biased = normalized({.logit_bias = {{1, -1000.0f}, {2, 5.0f}, {3, 1e30f}}});
  CHECK(biased.logit_bias == std::vector<std::pair<int32_t, float>>{{1, -100.0f}, {2, 5.0f}, {3, 100.0f}});
  CHECK(normalized({.logprob_token_ids = {4, 5}}).logprobs == 2);
}

TEST_CASE("the slot's values stay inside what the sampler can choose from") {
  const SlotSampling slot = slot_sampling({.temperature = 0.5, .top_p = 1e-300, .top_k = 5, .min_p = 0.25}, 9, 100);
  CHECK(slot.temperature == 0.5f);
  CHECK(slot.top_p > 0);
  CHECK(slot.top_k == 5);
  CHECK(slot.min_p == 0.25f);
  CHECK(slot.key == 9);
  for (const int64_t top_k : {int64_t{0}, int64_t{100}, std::numeric_limits<int64_t>::max()}) {
    CHECK(slot_sampling({.top_k = top_k}, 0, 100).top_k == 0);
  }
}

TEST_CASE("every request and every sample of it has a key of its own, the same in every version") {
  std::set<uint64_t> keys;
  for (const uint64_t random_key : {uint64_t{0}, uint64_t{1}, uint64_t{42}, ~uint64_t{0}}) {
    for (int index = 0; index < 16; ++index) keys.insert(sample_key(random_key, index));
  }
  CHECK(keys.size() == 64);
  // What rows drew in earlier versions must be drawn again.
  CHECK(sample_key(42, 0) == 0x97ea87f7e45c00a5u);
  CHECK(sample_key(42, 1) == 0x989b3f130a063869u);
  CHECK(sample_key(~uint64_t{0}, 3) == 0x5176985d86cff511u);
}

TEST_CASE("bias, allowed ids and bad words of one token become one list of biases, ascending by id") {
  const float masked = -std::numeric_limits<float>::infinity();
  SamplingParams params;
  params.logit_bias = {{3, 1.5f}, {7, -2.0f}};
  params.bad_words = {{7}, {1, 2}, {5}};
  SlotSampling slot = slot_sampling(params, 1, 100);
  CHECK_FALSE(slot.only_biased);
  CHECK(slot.bias == std::vector<TokenBias>{{3, 1.5f}, {5, masked}, {7, masked}});
  params.allowed_token_ids = {9, 3, 5};
  slot = slot_sampling(params, 1, 100);
  CHECK(slot.only_biased);
  CHECK(slot.bias == std::vector<TokenBias>{{3, 1.5f}, {5, masked}, {7, masked}, {9, 0}});
  CHECK(slot_sampling({}, 1, 100) == SlotSampling{.temperature = 1, .key = 1});
  CHECK_FALSE(slot_sampling({}, 1, 100).has_bias());
}

TEST_CASE("the numbers of tokens reported: none, some, the whole vocabulary, those of a list") {
  CHECK(slot_sampling({}, 1, 100).num_logprobs == -1);
  CHECK(slot_sampling({.logprobs = 0}, 1, 100).num_logprobs == 0);
  CHECK(slot_sampling({.logprobs = -1, .prompt_logprobs = 200}, 1, 100).num_logprobs == 100);
  CHECK(slot_sampling({.logprobs = -1, .prompt_logprobs = 200}, 1, 100).num_prompt_logprobs == 100);
  const SlotSampling listed = slot_sampling(normalized({.logprob_token_ids = {4, 2}}), 1, 100);
  CHECK(listed.num_logprobs == 2);
  CHECK(listed.logprob_token_ids == std::vector<int32_t>{4, 2});
}

}  // namespace
}  // namespace tokenmill
