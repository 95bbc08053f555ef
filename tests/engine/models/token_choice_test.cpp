// Sampling through the engine and a model: every parameter that looks at tokens of before, against the f64 sampler over
// the model's own logits, and with the prompt cached, in chunks, preempted.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/sample_constraints.h"
#include "kernels/random.h"
#include "tests/engine/models/loaded_model.h"
#include "tests/support/fake_ops.h"
#include "tests/support/model_harness.h"
#include "tests/support/random.h"
#include "tests/support/reference_sampling.h"

namespace tokenmill {
namespace {

using test::Loaded;

constexpr int32_t kEos = 2;
constexpr int64_t kVocab = 411;

std::vector<Request> penalised_requests(int64_t count) {
  test::Random random(5);
  const auto id = [&] { return static_cast<int32_t>(random.index(kVocab)); };
  std::vector<Request> requests;
  for (int64_t i = 0; i < count; ++i) {
    Request& request = requests.emplace_back();
    request.request_id = i;
    request.random_key = static_cast<uint64_t>(i * 77);
    for (int64_t p = 20 + 7 * i; p > 0; --p) request.prompt_token_ids.push_back(id());
    SamplingParams& sampling = request.sampling;
    sampling.temperature = i % 4 == 0 ? 0 : 1;
    sampling.top_p = i % 3 == 0 ? 0.95 : 1;
    sampling.max_tokens = 60;
    sampling.repetition_penalty = i % 2 == 0 ? 1.3f : 1;
    sampling.frequency_penalty = i % 3 == 1 ? 0.7f : 0;
    sampling.presence_penalty = i % 4 == 2 ? 1.1f : 0;
    if (i % 3 == 2) sampling.min_tokens = 10;
    if (i % 4 == 3) sampling.bad_words = {{id()}, {id(), id()}, {86, 87}, {87, 86}};
    if (i % 5 == 4) sampling.logit_bias = {{3, 2.5f}, {kEos, 4.0f}, {86, -3.0f}};
    if (i % 6 == 5) {
      std::vector<int32_t> allowed;
      for (int32_t a = 0; a < 200; ++a) allowed.push_back(2 * a);
      sampling.allowed_token_ids = std::move(allowed);
    }
    sampling.logprobs = 2;
  }
  return requests;
}

reference::SamplerRow row_of(const SamplingParams& params, std::span<const int32_t> prompt,
                             const std::vector<int32_t>& generated) {
  reference::SamplerRow row{.temperature = params.temperature,
                            .filter = {.top_p = static_cast<float>(params.top_p)},
                            .presence_penalty = params.presence_penalty,
                            .frequency_penalty = params.frequency_penalty,
                            .repetition_penalty = params.repetition_penalty,
                            .prompt_ids = {prompt.begin(), prompt.end()},
                            .generated_ids = generated};
  row.bias.assign(kVocab, params.allowed_token_ids.empty() ? 0 : -INFINITY);
  for (const int32_t id : params.allowed_token_ids) row.bias[static_cast<size_t>(id)] = 0;
  for (const auto& [id, bias] : params.logit_bias) row.bias[static_cast<size_t>(id)] += bias;
  for (const auto& word : params.bad_words) {
    if (word.size() == 1) row.bias[static_cast<size_t>(word[0])] = -INFINITY;
    if (word.size() == 2 && !generated.empty() && generated.back() == word[0]) row.masked_ids.push_back(word[1]);
  }
  if (static_cast<int64_t>(generated.size()) < params.min_tokens) row.masked_ids.push_back(kEos);
  return row;
}

/// Token by token from the model's logits, until a decision is too close for f32 or the sequence ends.
int64_t check_tokens(test::ModelHarness& harness, const Request& request, const SequenceOutput& output) {
  std::vector<int32_t> ids = request.prompt_token_ids, generated;
  const auto num_prompt = static_cast<int64_t>(ids.size());
  harness.reset();
  std::vector<int32_t> next = ids;
  for (size_t i = 0; i < output.token_ids.size(); ++i) {
    const auto logits = harness.step(next, {static_cast<int32_t>(next.size()) - 1}).at(0);
    const reference::Values values(logits.begin(), logits.end());
    const double u = uniform(sample_key(request.random_key, 0), num_prompt + static_cast<int64_t>(i));
    const reference::Draw want =
        reference::draw(values, row_of(request.sampling, request.prompt_token_ids, generated), u);
    if (want.margin < 2e-5) return static_cast<int64_t>(i);
    const int32_t id = output.token_ids[i];
    REQUIRE(id == want.id);
    const PositionLogprobs& reported = output.logprobs.at(i);
    CHECK(double{reported.at(0).logprob} == doctest::Approx(reference::logprob(values, id)).epsilon(1e-4));
    CHECK(reported[0].rank == reference::rank(values, id));
    CHECK(reported.at(2).token_id == reference::most_likely(values, 2)[1]);
    generated.push_back(id);
    next = {id};
  }
  return static_cast<int64_t>(output.token_ids.size());
}

void check_engine(Ops& ops, int64_t count) {
  CAPTURE(ops.describe());
  const std::vector<Request> requests = penalised_requests(count);
  Loaded model(ops, "tiny-llama", 4, 32);
  Engine engine(*model.runner, nullptr, {.eos_token_ids = {kEos}, .detokenize = false});
  const std::vector<RequestOutput> outputs = test::run_all(engine, requests);
  test::ModelHarness harness(ops, std::string(TM_TEST_DATA) + "/models/tiny-llama", DType::kF32, 192);
  int64_t num_checked = 0, num_tokens = 0;
  for (size_t r = 0; r < requests.size(); ++r) {
    CAPTURE(r);
    REQUIRE_FALSE(outputs[r].error);
    const SequenceOutput& output = outputs[r].outputs.at(0);
    num_checked += check_tokens(harness, requests[r], output);
    num_tokens += static_cast<int64_t>(output.token_ids.size());
    CHECK(static_cast<int64_t>(output.token_ids.size()) >= requests[r].sampling.min_tokens);
  }
  CHECK(num_checked > num_tokens * 8 / 10);
}

TEST_CASE("tokens behind penalties, biases, masks and bad words are those of the f64 sampler over the model's logits") {
  const auto ops = make_ops({}, {.num_threads = 2});
  check_engine(*ops, 20);
  test::FakeOps fake;
  check_engine(fake, 6);
}

TEST_CASE("penalties give the same ids with the prefix cache off, cold and warm, in chunks, and after a preemption") {
  const auto ops = make_ops({}, {.num_threads = 2});
  const std::vector<Request> requests = penalised_requests(12);
  const auto run = [&](int64_t seqs, int64_t tokens, int64_t blocks, bool cache, int times) {
    Loaded model(*ops, "tiny-llama", seqs, tokens, DType::kF32, blocks);
    Engine engine(*model.runner, nullptr,
                  {.scheduler = {.enable_prefix_caching = cache, .first_length_guess = 1, .watermark = 0},
                   .eos_token_ids = {kEos},
                   .detokenize = false});
    std::vector<RequestOutput> outputs;
    for (int i = 0; i < times; ++i) outputs = test::run_all(engine, requests);
    return std::pair(std::move(outputs), engine.stats());
  };
  const auto [want, plain] = run(1, 512, 40, false, 1);
  const auto check_same = [&](const std::vector<RequestOutput>& outputs) {
    for (size_t r = 0; r < requests.size(); ++r) {
      CAPTURE(r);
      CHECK(outputs[r].outputs.at(0).token_ids == want[r].outputs.at(0).token_ids);
      CHECK(outputs[r].outputs.at(0).logprobs == want[r].outputs.at(0).logprobs);
    }
  };
  check_same(run(6, 512, 40, false, 1).first);
  check_same(run(6, 17, 40, true, 1).first);  // cold, in chunks
  const auto [warm, warm_stats] = run(12, 512, 150, true, 2);
  CHECK(warm_stats.prefix_cache_hits > 0);
  check_same(warm);
  const auto [tight, tight_stats] = run(8, 512, 16, true, 1);
  CHECK(tight_stats.num_preemptions > 0);
  check_same(tight);
}

TEST_CASE("a row that allows no token fails alone") {
  const auto ops = make_ops({}, {.num_threads = 2});
  Loaded model(*ops, "tiny-llama", 3, 32);
  Engine engine(*model.runner, nullptr, {.detokenize = false});
  std::vector<Request> requests = penalised_requests(3);
  requests[1].sampling.allowed_token_ids = {5, 6};
  requests[1].sampling.bad_words = {{5}, {6}};
  const std::vector<RequestOutput> outputs = test::run_all(engine, requests);
  REQUIRE(outputs[1].error);
  CHECK(outputs[1].error->code == "invalid_request");
  CHECK(outputs[1].error->message.starts_with("no token is allowed as generated token 1"));
  CHECK_FALSE(outputs[0].error);
  CHECK_FALSE(outputs[2].error);
}

}  // namespace
}  // namespace tokenmill
