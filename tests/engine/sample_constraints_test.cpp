#include "engine/sample_constraints.h"

#include <doctest/doctest.h>

using namespace tokenmill;

namespace {
StepConstraints next(const SamplingParams& params, const std::vector<int32_t>& generated) {
  StepConstraints out{7, {7}};
  SampleConstraints(params, std::vector<int32_t>{2, 3}).next(static_cast<int64_t>(generated.size()), generated, out);
  return out;
}
}  // namespace

TEST_CASE("sample constraints: none for parameters that do not look back") {
  SamplingParams params;
  params.bad_words = {{5}};  // a word of one token is a property of the slot
  params.stop_token_ids = {9};
  const SampleConstraints constraints(params, std::vector<int32_t>{2});
  CHECK(constraints.empty());
  CHECK_FALSE(constraints.needs_history());
}

TEST_CASE("sample constraints: min_tokens masks end and stop ids until it is reached") {
  SamplingParams params;
  params.min_tokens = 2;
  params.stop_token_ids = {9};
  CHECK(next(params, {}) == StepConstraints{-1, {9, 2, 3}});
  CHECK(next(params, {1}) == StepConstraints{-1, {9, 2, 3}});
  CHECK(next(params, {1, 1}) == StepConstraints{});
  params.ignore_eos = true;
  CHECK(next(params, {}) == StepConstraints{-1, {9}});
}

TEST_CASE("sample constraints: the last token of a bad word is masked behind its others") {
  SamplingParams params;
  params.bad_words = {{4, 5}, {6, 4, 8}, {9}};
  CHECK(SampleConstraints(params, {}).needs_history());
  CHECK(next(params, {}) == StepConstraints{});
  CHECK(next(params, {4}) == StepConstraints{-1, {5}});
  CHECK(next(params, {6, 4}) == StepConstraints{-1, {5, 8}});
  CHECK(next(params, {4, 1}) == StepConstraints{});
}

TEST_CASE("sample constraints: a trace is replayed, then tokens are sampled") {
  SamplingParams params;
  params.trace_decode_token_ids = {11, 12};
  CHECK_FALSE(SampleConstraints(params, {}).needs_history());
  CHECK(next(params, {}).forced_token_id == 11);
  CHECK(next(params, {11}).forced_token_id == 12);
  CHECK(next(params, {11, 12}).forced_token_id == -1);
}

TEST_CASE("sample constraints: thinking past its budget forces the end marker") {
  SamplingParams params;
  params.thinking_budget = ThinkingBudget{.max_tokens = 1, .start_token_ids = {20}, .end_token_ids = {21}};
  CHECK(SampleConstraints(params, {}).needs_history());
  CHECK_FALSE(SampleConstraints(params, {}).empty());
  CHECK(next(params, {}) == StepConstraints{});
  CHECK(next(params, {20}) == StepConstraints{});
  CHECK(next(params, {20, 1}) == StepConstraints{21, {}});
}
