// Hidden states of prompts through the engine: against transformers', and however the prompt is computed.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/engine/models/loaded_model.h"
#include "tests/support/fake_ops.h"

namespace tokenmill {
namespace {

using test::Loaded;

constexpr double kTolerance = 2e-5;  // of values around 1, f32 sums in another order

void check_close(const std::vector<float>& got, const io::JsonValue& want) {
  REQUIRE(got.size() == want.items().size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    const double value = want.items()[i].as_double();
    CHECK(std::abs(double{got[i]} - value) < kTolerance * std::max(1.0, std::abs(value)));
  }
}

/// All cases of a model at once, each for its last token and its mean; every other one generates nothing.
void check_golden(Ops& ops, const std::string& name, int64_t max_num_seqs, int64_t max_tokens) {
  CAPTURE(ops.describe());
  CAPTURE(name);
  CAPTURE(max_tokens);
  const io::JsonValue golden = io::parse_json_file(std::string(TM_TEST_DATA) + "/golden/hidden_states.json");
  Loaded model(ops, name, max_num_seqs, max_tokens);
  Engine engine(*model.runner, nullptr, {.detokenize = false});
  std::vector<const io::JsonValue*> wanted;
  std::vector<Request> requests;
  for (const io::JsonValue& c : golden.at("cases").items()) {
    if (c.at("model").as_string() != name) continue;
    for (const HiddenStates which : {HiddenStates::kLast, HiddenStates::kMean}) {
      Request& request = requests.emplace_back();
      request.request_id = static_cast<int64_t>(wanted.size());
      request.prompt_token_ids = test::ids_of(c.at("prompt_ids"));
      request.sampling.hidden_states = which;
      request.sampling.max_tokens = requests.size() / 2 % 2 == 0 ? 3 : 0;
      wanted.push_back(&c.at(to_string(which)));
    }
  }
  const std::vector<RequestOutput> outputs = test::run_all(engine, requests);
  REQUIRE(wanted.size() >= 8);
  for (size_t r = 0; r < wanted.size(); ++r) {
    CAPTURE(r);
    REQUIRE_FALSE(outputs[r].error);
    CHECK(static_cast<int64_t>(outputs[r].outputs.at(0).token_ids.size()) == *requests[r].sampling.max_tokens);
    check_close(outputs[r].hidden_state, *wanted[r]);
  }
}

TEST_CASE("hidden states of prompts are those of transformers in float32") {
  const auto ops = make_ops({}, {.num_threads = 2});
  for (const char* name : {"tiny-llama", "tiny-mistral", "tiny-qwen2", "tiny-qwen3"}) {
    check_golden(*ops, name, 3, 16);
    check_golden(*ops, name, 8, 512);
  }
  test::FakeOps fake;
  check_golden(fake, "tiny-llama", 3, 40);
}

TEST_CASE("hidden states have the same bits in any chunks, beside any rows, with the prefix cached or preempted") {
  const auto ops = make_ops({}, {.num_threads = 2});
  std::vector<Request> requests;
  for (int64_t i = 0; i < 9; ++i) {
    Request& request = requests.emplace_back();
    request.request_id = i;
    request.sampling.max_tokens = i % 3 == 0 ? 0 : 60;
    request.sampling.n = i == 4 ? 2 : 1;
    request.sampling.hidden_states = i % 2 == 0 ? HiddenStates::kMean : HiddenStates::kLast;
    for (int64_t p = 0; p < 58 + i; ++p)  // the longest of four blocks, and more
      request.prompt_token_ids.push_back(static_cast<int32_t>((p * 37 + p * p) % 400));
  }
  const auto run = [&](DType dtype, int64_t seqs, int64_t tokens, int64_t blocks, bool cache, int times) {
    Loaded model(*ops, "tiny-llama", seqs, tokens, dtype, blocks);
    Engine engine(
        *model.runner, nullptr,
        {.scheduler = {.enable_prefix_caching = cache, .first_length_guess = 1, .watermark = 0}, .detokenize = false});
    std::vector<RequestOutput> outputs;
    for (int i = 0; i < times; ++i) outputs = test::run_all(engine, requests);
    return std::pair(std::move(outputs), engine.stats());
  };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto [alone, plain] = run(dtype, 1, 512, 40, false, 1);
    const auto check_same = [&, &alone = alone](const std::vector<RequestOutput>& outputs) {
      for (size_t r = 0; r < requests.size(); ++r) {
        CAPTURE(r);
        REQUIRE(alone[r].hidden_state.size() == 64);
        CHECK(outputs[r].hidden_state == alone[r].hidden_state);
        CHECK(outputs[r].outputs.at(0).token_ids == alone[r].outputs.at(0).token_ids);
      }
    };
    check_same(run(dtype, 9, 512, 60, false, 1).first);
    check_same(run(dtype, 6, 13, 60, true, 1).first);
    const auto [twice, cached] = run(dtype, 2, 64, 60, true, 2);  // the second time everything is cached
    check_same(twice);
    CHECK(cached.prefix_cache_hits > 0);
    const auto [tight, stats] = run(dtype, 6, 17, 14, false, 1);
    CHECK(stats.num_preemptions > 0);
    check_same(tight);
  }
}

TEST_CASE("a mean is taken over all rows that came; values that are not finite are found") {
  HiddenMean mean;
  std::vector<float> rows = {1, 2, 3, 5};
  mean.add(TensorView(rows.data(), DType::kF32, {2, 2}));
  rows = {5, -1, 0, 0};
  mean.add(TensorView(rows.data(), DType::kF32, {1, 2}));
  CHECK(mean.take() == std::vector<float>{3, 2});
  CHECK_FALSE(first_non_finite({0, -1, 3e38f}));
  CHECK(first_non_finite({0, -1, INFINITY, NAN}) == 2);
}

}  // namespace
}  // namespace tokenmill
