// How many KV blocks whole loads take through the engine, and how much of them is used.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "engine/engine.h"
#include "tests/support/fake_runner.h"

namespace tokenmill {
namespace {

constexpr int32_t kVocabSize = 1000;

RunnerLimits roomy_limits() {
  RunnerLimits limits;
  limits.kv_groups = {{.block_size = 16}};
  limits.num_blocks = {4096};
  limits.max_num_seqs = 64;
  limits.max_num_batched_tokens = 2048;
  limits.max_logits_rows = 64;
  limits.max_model_len = 1024;
  limits.vocab_size = kVocabSize;
  return limits;
}

std::vector<int32_t> random_prompt(std::mt19937_64& random, int num_tokens) {
  std::vector<int32_t> ids;
  for (int i = 0; i < num_tokens; ++i) ids.push_back(static_cast<int32_t>(random() % kVocabSize));
  return ids;
}

/// Of an engine that has answered these; every answer has max_tokens tokens.
EngineStats stats_of(const std::vector<Request>& requests, int64_t max_tokens) {
  const RunnerLimits limits = roomy_limits();
  test::FakeRunner runner({.kv_groups = limits.kv_groups, .vocab_size = kVocabSize, .seed = 5}, limits);
  Engine engine(runner, nullptr, {.detokenize = false});
  for (Request request : requests) {
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    engine.submit(std::move(request));
  }
  while (engine.step()) {
  }
  for (const RequestOutput& output : engine.take_finished()) {
    REQUIRE(!output.error);
    for (const auto& sample : output.outputs) REQUIRE(static_cast<int64_t>(sample.token_ids.size()) == max_tokens);
  }
  return engine.stats();
}

TEST_CASE("four samples of a prompt of 512 tokens take its blocks once, and four tails") {
  std::mt19937_64 random(3);
  Request request;
  request.prompt_token_ids = random_prompt(random, 512);
  request.sampling.n = 4;
  const EngineStats stats = stats_of({request}, 64);
  // 512 tokens are 32 blocks. A tail is the prompt's last block, where its last token is computed again, and 63 tokens.
  CHECK(stats.kv_blocks_used_peak == 31 + 4 * (1 + 4));
  CHECK(stats.num_computed_prompt_tokens == 512 + 3);
  request.sampling.n = 1;
  CHECK(stats_of({request}, 64).kv_blocks_used_peak == 32 + 4);
}

TEST_CASE("the load of the throughput benchmark leaves less than 4 % of its blocks' slots unused") {
  std::mt19937_64 random(4);
  std::vector<Request> requests;
  for (int i = 0; i < 64; ++i) {
    Request& request = requests.emplace_back();
    request.request_id = i;
    request.prompt_token_ids = random_prompt(random, 256);
  }
  const EngineStats stats = stats_of(requests, 128);
  CHECK(stats.num_preemptions == 0);
  CHECK(static_cast<double>(stats.sum_running) / static_cast<double>(stats.num_steps) >= 48);
  const double waste = stats.sum_kv_waste / static_cast<double>(stats.num_steps);
  MESSAGE("kv_waste ", waste);
  CHECK(waste < 0.04);
  CHECK(waste > 0);
}

}  // namespace
}  // namespace tokenmill
