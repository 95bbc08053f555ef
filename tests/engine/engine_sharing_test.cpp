// What requests share through the engine: samples of one row, prefixes of several, and what of it is counted.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include "engine/engine.h"
#include "tests/support/fake_runner.h"

namespace tokenmill {
namespace {

using Ids = std::vector<int32_t>;

RunnerLimits limits_with_chunk(int64_t chunk) {
  RunnerLimits limits;
  limits.kv_groups = {{.block_size = 16}};
  limits.num_blocks = {16};
  limits.max_num_seqs = 4;
  limits.max_num_batched_tokens = chunk;
  limits.max_logits_rows = 4;
  limits.max_scored_rows = 40;
  limits.max_logprobs = 2;
  limits.max_model_len = 64;
  limits.vocab_size = 272;
  return limits;
}

struct FakeEngine {
  explicit FakeEngine(int64_t chunk, bool enable_prefix_caching = true, int64_t fails_one_in = 0)
      : model{limits_with_chunk(chunk).kv_groups, 272, 3, fails_one_in},
        runner(model, limits_with_chunk(chunk)),
        engine(runner, nullptr, {.scheduler = {.enable_prefix_caching = enable_prefix_caching}, .detokenize = false}) {}
  RequestOutput run(Request request) {
    engine.submit(std::move(request));
    while (engine.step()) {
    }
    std::vector<RequestOutput> outputs = engine.take_finished();
    REQUIRE(outputs.size() == 1);
    return outputs.front();
  }
  test::FakeModel model;
  test::FakeRunner runner;
  Engine engine;
};

Ids prompt_of(int64_t num_tokens) {
  Ids prompt;
  for (int64_t i = 0; i < num_tokens; ++i) prompt.push_back(static_cast<int32_t>(i * 5 % 272));
  return prompt;
}

TEST_CASE("the samples of a row come in order of their index, each with its own stream, once all have ended") {
  FakeEngine fake(32);
  const Ids prompt = prompt_of(20);
  const RequestOutput output =
      fake.run({.prompt_token_ids = prompt, .sampling = {.n = 6, .max_tokens = 5}, .random_key = 9});
  REQUIRE(output.outputs.size() == 6);
  for (int index = 0; index < 6; ++index) {
    CHECK(output.outputs[static_cast<size_t>(index)].index == index);
    Ids all = prompt;
    for (const int32_t id : output.outputs[static_cast<size_t>(index)].token_ids) {
      CHECK(fake.model.next(all, sample_key(9, index)).token_id == id);
      all.push_back(id);
    }
    CHECK(all.size() == 25);
  }
  CHECK(output.num_completion_tokens == 30);
  const EngineStats& stats = fake.engine.stats();
  CHECK(stats.num_finished == 1);
  CHECK(stats.num_prompt_tokens == 20);
  // 20, one token for each of the three that share the first one's blocks, then two whose first is gone: 4 of 20.
  CHECK(stats.num_computed_prompt_tokens == 20 + 3 + 2 * 4);
  CHECK(stats.sum_kv_shared_blocks > 0);
  CHECK(fake.engine.num_unfinished() == 0);
}

TEST_CASE("a row of which one sample fails has one error, that of its first sample that fails") {
  int num_failed = 0;
  for (uint64_t key = 0; key < 40; ++key) {
    FakeEngine fake(32, true, 20);
    const RequestOutput output =
        fake.run({.prompt_token_ids = prompt_of(20), .sampling = {.n = 4, .max_tokens = 8}, .random_key = key});
    std::string expected;
    for (int index = 0; index < 4 && expected.empty(); ++index) {
      Ids all = prompt_of(20);
      for (int number = 1; number <= 8 && expected.empty(); ++number) {
        const SampledToken token = fake.model.next(all, sample_key(key, index));
        all.push_back(token.token_id);
        if (token.status == SampleStatus::kFine) continue;
        expected = fmt::format("the model's logits for generated token {} hold NaN", number);
      }
    }
    REQUIRE(output.error.has_value() == !expected.empty());
    if (!output.error) continue;
    ++num_failed;
    CHECK(output.error->message.starts_with(expected));
    CHECK(output.outputs.empty());
    CHECK(fake.engine.stats().num_failed == 1);
    CHECK(fake.engine.stats().kv_blocks_used_now == 0);
  }
  CHECK(num_failed > 10);
}

TEST_CASE("a whole cached prompt: the same ids and scores, at least the last token computed") {
  for (const int64_t num_tokens : {31, 32, 33}) {
    for (const int64_t chunk : {40, 16, 15}) {
      CAPTURE(num_tokens);
      CAPTURE(chunk);
      const Request plain{.prompt_token_ids = prompt_of(num_tokens), .sampling = {.max_tokens = 6, .logprobs = 1}};
      Request scored = plain;
      scored.sampling.prompt_logprobs = 1;
      Ids other = prompt_of(20);
      other.back() = 271;  // shares the first block only
      FakeEngine cold(chunk, /*enable_prefix_caching=*/false), warm(chunk);
      const RequestOutput expected = cold.run(plain), expected_scored = cold.run(scored);
      CHECK(warm.run(plain).outputs[0].logprobs == expected.outputs[0].logprobs);
      const RequestOutput again = warm.run(plain);
      CHECK(again.outputs[0].token_ids == expected.outputs[0].token_ids);
      CHECK(again.outputs[0].logprobs == expected.outputs[0].logprobs);
      CHECK(again.timing.num_cached_tokens == (num_tokens == 31 ? 16 : num_tokens == 32 ? 31 : 32));
      warm.run({.prompt_token_ids = other, .sampling = {.max_tokens = 1}});
      const RequestOutput scores = warm.run(scored);
      CHECK(scores.prompt_logprobs == expected_scored.prompt_logprobs);
      CHECK(static_cast<int64_t>(scores.prompt_logprobs.size()) == num_tokens - 1);
      CHECK(scores.outputs[0].token_ids == expected.outputs[0].token_ids);
      CHECK(scores.timing.num_cached_tokens == 0);
      CHECK(warm.run(plain).outputs[0].token_ids == expected.outputs[0].token_ids);
    }
  }
}

TEST_CASE("a row that skips the cache computes everything, gives the same, and may be read by others") {
  FakeEngine fake(32);
  Request request{.prompt_token_ids = prompt_of(24), .sampling = {.max_tokens = 4, .skip_reading_prefix_cache = true}};
  const Ids first = fake.run(request).outputs.at(0).token_ids;
  const RequestOutput again = fake.run(request);
  CHECK(again.outputs.at(0).token_ids == first);
  CHECK(again.timing.num_cached_tokens == 0);
  request.sampling.skip_reading_prefix_cache = false;
  CHECK(fake.run(request).timing.num_cached_tokens == 16);
}

TEST_CASE("rows of different salts share nothing") {
  FakeEngine fake(32);
  const auto cached = [&](const std::string& salt) {
    const RequestOutput output =
        fake.run({.prompt_token_ids = prompt_of(24), .sampling = {.max_tokens = 4}, .cache_salt = salt});
    Ids all = prompt_of(24);
    for (const int32_t id : output.outputs.at(0).token_ids) {
      CHECK(fake.model.next(all, sample_key(0, 0)).token_id == id);
      all.push_back(id);
    }
    return output.timing.num_cached_tokens;
  };
  CHECK(cached("s1") == 0);
  CHECK(cached("s1") == 16);
  CHECK(cached("s2") == 0);
  CHECK(cached("") == 0);
  CHECK(cached("s2") == 16);
  CHECK(cached("") == 16);
  CHECK(fake.engine.stats().prefix_cache_queries == 6 * 24);
  CHECK(fake.engine.stats().prefix_cache_hits == 3 * 16);
}

TEST_CASE("what a row with non-finite logits has computed is not found by the next") {
  int num_failed = 0;
  for (uint64_t key = 0; key < 30; ++key) {
    FakeEngine fake(32, true, 4);
    const bool failed = fake.run({.prompt_token_ids = prompt_of(33), .sampling = {.max_tokens = 6}, .random_key = key})
                            .error.has_value();
    const RequestOutput next =
        fake.run({.prompt_token_ids = prompt_of(33), .sampling = {.max_tokens = 6}, .random_key = key});
    num_failed += failed ? 1 : 0;
    CHECK(next.error.has_value() == failed);
    CHECK(next.timing.num_cached_tokens == (failed ? 0 : 32));
  }
  CHECK(num_failed > 5);
}

}  // namespace
}  // namespace tokenmill
