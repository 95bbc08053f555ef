// Logprobs of generated and of prompt tokens through the engine: against torch's, and however the prompt is computed.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/engine/models/loaded_model.h"
#include "tests/support/fake_ops.h"

namespace tokenmill {
namespace {

using test::Loaded;

constexpr double kTolerance = 1e-4;

/// entry: [logprob, rank, most likely ids, their logprobs].
void check_position(const PositionLogprobs& got, int32_t token_id, const io::JsonValue& entry) {
  const auto& want = entry.items();
  const auto ids = test::ids_of(want[2]);
  REQUIRE(got.size() == 1 + ids.size());
  CHECK(got[0].token_id == token_id);
  CHECK(std::abs(double{got[0].logprob} - want[0].as_double()) < kTolerance);
  CHECK(std::abs(got[0].rank - want[1].as_int64()) <= 1);  // a neighbour may lie within rounding
  for (size_t i = 0; i < ids.size(); ++i) {
    const double logprob = want[3].items()[i].as_double();
    CHECK(std::abs(double{got[i + 1].logprob} - logprob) < kTolerance);
    CHECK(got[i + 1].rank == static_cast<int32_t>(i + 1));
    const bool is_tie = (i > 0 && want[3].items()[i - 1].as_double() - logprob < kTolerance) ||
                        (i + 1 < ids.size() && logprob - want[3].items()[i + 1].as_double() < kTolerance);
    if (!is_tie) CHECK(got[i + 1].token_id == ids[i]);
  }
}

/// All cases of a model at once: prompts scored, the golden output replayed.
void check_golden(Ops& ops, const std::string& name, int64_t max_num_seqs, int64_t max_tokens) {
  CAPTURE(ops.describe());
  CAPTURE(name);
  CAPTURE(max_tokens);
  const io::JsonValue golden = io::parse_json_file(std::string(TM_TEST_DATA) + "/golden/logprobs.json");
  Loaded model(ops, name, max_num_seqs, max_tokens);
  Engine engine(*model.runner, nullptr, {.detokenize = false});
  std::vector<const io::JsonValue*> cases;
  std::vector<Request> requests;
  for (const io::JsonValue& c : golden.at("cases").items()) {
    if (c.at("model").as_string() != name) continue;
    Request& request = requests.emplace_back();
    request.request_id = static_cast<int64_t>(cases.size());
    request.prompt_token_ids = test::ids_of(c.at("prompt_ids"));
    request.sampling.trace_decode_token_ids = test::ids_of(c.at("output_ids"));
    request.sampling.max_tokens = static_cast<int64_t>(request.sampling.trace_decode_token_ids.size());
    request.sampling.logprobs = request.sampling.prompt_logprobs = 5;
    cases.push_back(&c);
  }
  const std::vector<RequestOutput> outputs = test::run_all(engine, requests);
  REQUIRE(cases.size() >= 4);
  for (size_t r = 0; r < cases.size(); ++r) {
    CAPTURE(cases[r]->at("name").as_string());
    REQUIRE_FALSE(outputs[r].error);
    const std::vector<int32_t>& prompt = requests[r].prompt_token_ids;
    const auto& prompt_want = cases[r]->at("prompt").items();
    REQUIRE(outputs[r].prompt_logprobs.size() == prompt.size() - 1);
    for (size_t i = 0; i + 1 < prompt.size(); ++i) {
      check_position(outputs[r].prompt_logprobs[i], prompt[i + 1], prompt_want[i]);
    }
    const SequenceOutput& output = outputs[r].outputs.at(0);
    CHECK(output.token_ids == requests[r].sampling.trace_decode_token_ids);
    REQUIRE(output.logprobs.size() == output.token_ids.size());
    double sum = 0;
    for (size_t i = 0; i < output.token_ids.size(); ++i) {
      check_position(output.logprobs[i], output.token_ids[i], cases[r]->at("output").items()[i]);
      sum += static_cast<double>(output.logprobs[i][0].logprob);
    }
    CHECK(output.cumulative_logprob == doctest::Approx(sum));
  }
}

TEST_CASE("logprobs of prompts and forced outputs are torch's within 1e-4, in steps of any size") {
  const auto ops = make_ops({}, {.num_threads = 2});
  for (const char* name : {"tiny-llama", "tiny-qwen3"}) {
    check_golden(*ops, name, 3, 16);
    check_golden(*ops, name, 8, 512);
  }
  test::FakeOps fake;
  check_golden(fake, "tiny-llama", 3, 40);
}

TEST_CASE("a scored prompt has the same bits in any chunks, beside any rows, with the prefix cached or preempted") {
  const auto ops = make_ops({}, {.num_threads = 2});
  std::vector<Request> requests;
  for (int64_t i = 0; i < 6; ++i) {
    Request& request = requests.emplace_back();
    request.request_id = i;
    request.sampling.max_tokens = i % 3 == 0 ? 0 : 60;
    request.sampling.temperature = 0;
    request.sampling.prompt_logprobs = i < 2 ? -1 : 3;  // -1: the whole vocabulary
    for (int64_t p = 0; p < 60 + i; ++p)
      request.prompt_token_ids.push_back(static_cast<int32_t>((p * 37 + p * p) % 400));
  }
  const auto run = [&](int64_t seqs, int64_t tokens, int64_t blocks, bool cache, int times) {
    Loaded model(*ops, "tiny-llama", seqs, tokens, DType::kF32, blocks);
    Engine engine(
        *model.runner, nullptr,
        {.scheduler = {.enable_prefix_caching = cache, .first_length_guess = 1, .watermark = 0}, .detokenize = false});
    std::vector<RequestOutput> outputs;
    for (int i = 0; i < times; ++i) outputs = test::run_all(engine, requests);
    return std::pair(std::move(outputs), engine.stats());
  };
  const auto [alone, plain] = run(1, 512, 40, false, 1);
  CHECK(alone[0].prompt_logprobs.at(5).size() == 1 + 411);
  CHECK(alone[1].outputs.at(0).token_ids.size() == 60);
  CHECK(alone[3].outputs.at(0).token_ids.empty());
  const auto check_same = [&](const std::vector<RequestOutput>& outputs) {
    for (size_t r = 0; r < requests.size(); ++r) {
      CAPTURE(r);
      CHECK(outputs[r].prompt_logprobs == alone[r].prompt_logprobs);
      CHECK(outputs[r].outputs.at(0).token_ids == alone[r].outputs.at(0).token_ids);
    }
  };
  check_same(run(6, 512, 40, false, 1).first);
  check_same(run(6, 13, 40, true, 1).first);
  check_same(run(2, 64, 40, true, 2).first);  // the second time everything is cached
  const auto [tight, stats] = run(6, 512, 14, false, 1);
  CHECK(stats.num_preemptions > 0);
  check_same(tight);
}

}  // namespace
}  // namespace tokenmill
