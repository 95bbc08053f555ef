// Sharing, copying, windows and preemption on real tensors: the same bits as without any of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "engine/engine.h"
#include "tests/engine/models/loaded_model.h"
#include "tests/support/fake_ops.h"

namespace tokenmill {
namespace {

using Ids = std::vector<int32_t>;

Ids prompt_of(int64_t num_tokens, int32_t seed = 3) {
  Ids prompt;
  for (int64_t i = 0; i < num_tokens; ++i) prompt.push_back(static_cast<int32_t>((i * 37 + seed * 11) % 250));
  return prompt;
}

struct Outcome {
  std::vector<RequestOutput> outputs;  // by request
  EngineStats stats;
};

Outcome run(Runner& runner, const std::vector<Request>& requests, const SchedulerOptions& options) {
  Engine engine(runner, nullptr, {.scheduler = options, .detokenize = false});
  Outcome outcome;
  outcome.outputs.resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    Request request = requests[i];
    request.request_id = static_cast<int64_t>(i);
    engine.submit(std::move(request));
  }
  while (engine.step()) {
  }
  for (RequestOutput& output : engine.take_finished()) {
    REQUIRE_FALSE(output.error);
    outcome.outputs[static_cast<size_t>(output.request_id)] = std::move(output);
  }
  outcome.stats = engine.stats();
  return outcome;
}

void check_equal(const Outcome& got, const Outcome& expected) {
  for (size_t r = 0; r < expected.outputs.size(); ++r) {
    CAPTURE(r);
    const RequestOutput &a = got.outputs[r], &b = expected.outputs[r];
    CHECK(a.prompt_logprobs == b.prompt_logprobs);
    REQUIRE(a.outputs.size() == b.outputs.size());
    for (size_t i = 0; i < b.outputs.size(); ++i) {
      CHECK(a.outputs[i].token_ids == b.outputs[i].token_ids);
      CHECK(a.outputs[i].logprobs == b.outputs[i].logprobs);
      CHECK(a.outputs[i].cumulative_logprob == b.outputs[i].cumulative_logprob);
    }
  }
}

/// Rows with common beginnings, whole prompts that come again, samples, salts, scores.
std::vector<Request> rows() {
  std::vector<Request> out;
  const auto add = [&](Ids prompt, SamplingParams sampling, const std::string& salt = "") {
    sampling.max_tokens = 12;
    sampling.ignore_eos = true;
    sampling.logprobs = 2;
    out.push_back({.prompt_token_ids = std::move(prompt),
                   .sampling = sampling,
                   .random_key = static_cast<uint64_t>(out.size()),
                   .cache_salt = salt});
  };
  for (const int64_t num_tokens : {31, 32, 33, 70}) {
    for (const char* salt : {"", "", "s1", "s1"}) add(prompt_of(num_tokens), {.temperature = 0}, salt);
  }
  add(prompt_of(37), {.n = 4, .temperature = 0.9});
  add(prompt_of(32), {.n = 3, .temperature = 0.9, .top_p = 0.95});
  add(prompt_of(64), {.temperature = 0, .prompt_logprobs = 1});
  Ids branch = prompt_of(64);
  branch.back() = 7;
  add(branch, {.temperature = 0.7, .prompt_logprobs = 0});
  add(prompt_of(64), {.temperature = 0});
  return out;
}

Outcome run_alone(Ops& ops, const std::string& name, DType dtype) {
  test::Loaded alone(ops, name, 1, 256, dtype);
  Outcome outcome = run(*alone.runner, rows(), {.enable_prefix_caching = false});
  CHECK(outcome.stats.prefix_cache_hits == 0);
  return outcome;
}

void check_roomy(Ops& ops, const std::string& name, DType dtype, const Outcome& expected) {
  test::Loaded roomy(ops, name, 8, 64, dtype);
  const Outcome got = run(*roomy.runner, rows(), {});
  check_equal(got, expected);
  CHECK(got.stats.prefix_cache_hits > 300);
  CHECK(got.stats.sum_kv_shared_blocks > 0);
  for (const int64_t chunk : {16, 15}) {  // of a block, and of one less
    test::Loaded chunked(ops, name, 3, chunk, dtype);
    check_equal(run(*chunked.runner, rows(), {}), expected);
  }
}

void check_tight(Ops& ops, const std::string& name, DType dtype, const Outcome& expected) {
  test::Loaded tight(ops, name, 6, 64, dtype, /*num_blocks=*/8);
  const Outcome got = run(*tight.runner, rows(), {.first_length_guess = 0, .watermark = 0});
  check_equal(got, expected);
  CHECK(got.stats.num_preemptions > 0);
}

TEST_CASE("what is shared, copied, windowed or computed again gives the same bits on the CPU device") {
  const auto ops = make_ops({}, {.num_threads = 2});
  for (const char* name : {"tiny-llama", "tiny-mistral"}) {  // Mistral's layers see 24 positions
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      CAPTURE(name);
      CAPTURE(to_string(dtype));
      const Outcome expected = run_alone(*ops, name, dtype);
      check_roomy(*ops, name, dtype, expected);
      check_tight(*ops, name, dtype, expected);
    }
  }
}

TEST_CASE("and on a device of another make") {
  test::FakeOps ops;
  check_tight(ops, "tiny-mistral", DType::kF32, run_alone(ops, "tiny-mistral", DType::kF32));
}

TEST_CASE("a window's blocks come back: a pool far smaller than the sequence is enough") {
  const auto ops = make_ops({}, {.num_threads = 1});
  const std::vector<Request> requests = {
      {.prompt_token_ids = prompt_of(130), .sampling = {.temperature = 0, .max_tokens = 40, .ignore_eos = true}}};
  test::Loaded roomy(*ops, "tiny-mistral", 1, 256), tight(*ops, "tiny-mistral", 1, 16, DType::kF32, /*num_blocks=*/3);
  const Outcome expected = run(*roomy.runner, requests, {.enable_prefix_caching = false});
  const Outcome got = run(*tight.runner, requests, {});
  check_equal(got, expected);
  CHECK(got.stats.kv_blocks_used_peak <= 3);
}

}  // namespace
}  // namespace tokenmill
