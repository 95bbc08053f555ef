// Errors that the engine gives a row, and the bounds on what its logprobs take. (Requests that can never run for other
// reasons are in engine_test.cpp.)
#include "engine/row_errors.h"

#include <doctest/doctest.h>

#include <map>

#include "tests/support/fake_runner.h"

namespace tokenmill {
namespace {

using Ids = std::vector<int32_t>;

RunnerLimits limits() {
  RunnerLimits limits;
  limits.kv_groups = {{.block_size = 16}};
  limits.num_blocks = {200};
  limits.max_num_seqs = limits.max_logits_rows = 16;
  limits.max_num_batched_tokens = 64;
  limits.max_scored_rows = 32;
  limits.max_logprobs = 272;
  limits.max_model_len = 128;
  limits.vocab_size = 272;
  return limits;
}

struct FakeEngine {
  explicit FakeEngine(EngineOptions options)
      : model{limits().kv_groups, limits().vocab_size, 3, 0},
        runner(model, limits()),
        engine(runner, TokenDecoderFactory(), without_text(options)) {}
  static EngineOptions without_text(EngineOptions options) {
    options.detokenize = false;
    return options;
  }
  std::map<int64_t, RequestOutput> run(std::vector<Request> requests) {
    for (Request& request : requests) engine.submit(std::move(request));
    std::map<int64_t, RequestOutput> outputs;
    while (engine.step()) most_running = std::max(most_running, engine.stats().num_running_now);
    for (RequestOutput& output : engine.take_finished()) outputs.emplace(output.request_id, std::move(output));
    CHECK(engine.idle());
    CHECK(engine.stats().logprob_bytes_now == 0);
    return outputs;
  }
  test::FakeModel model;
  test::FakeRunner runner;
  Engine engine;
  int64_t most_running = 0;
};

std::string error_of(const RequestOutput& output) {
  return output.error ? output.error->field + ": " + output.error->message : "";
}

TEST_CASE("a prompt whose scores exceed the memory of a row is refused with the numbers, before anything is computed") {
  FakeEngine fake({.max_row_logprob_bytes = 40 * 1024});
  const auto ask = [&](int64_t num_tokens, int64_t prompt_logprobs) {
    return error_of(fake.run({{.prompt_token_ids = Ids(static_cast<size_t>(num_tokens), 5),
                               .sampling = {.max_tokens = 1, .prompt_logprobs = prompt_logprobs}}})
                        .at(0));
  };
  const int64_t each = 40 + 273 * 12;
  CHECK(ask(1 + 40 * 1024 / each, -1) == "");
  const int64_t steps = fake.engine.stats().num_steps;
  CHECK(ask(2 + 40 * 1024 / each, -1) ==
        "prompt_logprobs: prompt_logprobs asks for 273 tokens at each of 13 positions, 42.10 KiB of memory; a row may "
        "report 40.00 KiB: ask for fewer tokens per position, or split the prompt");
  CHECK(ask(100, 2) == "");
  CHECK(fake.engine.stats().num_steps > steps);
}

TEST_CASE("a sample whose logprobs exceed its part of a row's memory ends the row, whatever runs beside it") {
  const auto request = [](int64_t n, int64_t max_tokens) {
    return Request{.prompt_token_ids = {5}, .sampling = {.n = n, .max_tokens = max_tokens, .logprobs = 0}};
  };
  FakeEngine fake({.max_row_logprob_bytes = 4 * 10 * 52});  // ten positions for each of four samples
  CHECK(error_of(fake.run({request(4, 10)}).at(0)) == "");
  CHECK(error_of(fake.run({request(4, 11)}).at(0)) ==
        "logprobs: with generated token 11 and 1 tokens reported for each, a sample's logprobs exceed 520 B; lower "
        "logprobs, max_tokens or n");
  CHECK(error_of(fake.run({request(1, 40)}).at(0)) == "");
  CHECK(fake.engine.stats().kv_blocks_used_now == 0);
}

TEST_CASE("no row is admitted while those that run hold more logprobs than all may; answers are the same") {
  const auto run = [](int64_t max_logprob_bytes, int64_t& most_running, int64_t& peak) {
    FakeEngine fake({.max_logprob_bytes = max_logprob_bytes});
    std::vector<Request> requests;
    for (int64_t i = 0; i < 40; ++i) {
      requests.push_back({.request_id = i,
                          .prompt_token_ids = Ids(static_cast<size_t>(20 + i), static_cast<int32_t>(i)),
                          .sampling = {.n = 1 + i % 3, .max_tokens = 40, .logprobs = 0, .prompt_logprobs = 10}});
    }
    auto outputs = fake.run(std::move(requests));
    most_running = fake.most_running;
    peak = fake.engine.stats().logprob_bytes_peak;
    return outputs;
  };
  int64_t free_running = 0, free_peak = 0, held_running = 0, held_peak = 0;
  const auto free = run(int64_t{1} << 30, free_running, free_peak);
  const auto held = run(20000, held_running, held_peak);
  CHECK(free_running > 6);
  CHECK(held_peak < free_peak / 2);
  CHECK(held_running < free_running);
  REQUIRE(held.size() == free.size());
  for (const auto& [id, output] : free) {
    CHECK(held.at(id).prompt_logprobs == output.prompt_logprobs);
    REQUIRE(held.at(id).outputs.size() == output.outputs.size());
    for (size_t i = 0; i < output.outputs.size(); ++i) {
      CHECK(held.at(id).outputs[i].token_ids == output.outputs[i].token_ids);
    }
  }
}

}  // namespace
}  // namespace tokenmill
