#include "engine/step_output.h"

#include <doctest/doctest.h>

#include "kernels/core/error.h"
#include "tests/engine/staging.h"
#include "tests/support/backends.h"

namespace tokenmill {
namespace {

using test::write;

RunnerLimits limits() {
  RunnerLimits limits;
  limits.max_logits_rows = 4;
  limits.max_scored_rows = 3;
  limits.max_logprobs = 2;
  limits.vocab_size = 50;
  return limits;
}

void fill(Ops& ops, const HeadOutput& out) {
  write<int32_t>(ops, out.picked.token_ids, {11, 12});
  write<float>(ops, out.picked.logprobs, {-0.5f, -1.5f});
  write<int32_t>(ops, out.picked.status, {0, 1});
  write<float>(ops, out.sampled.logprobs, {-0.5f, -1.5f});
  write<int32_t>(ops, out.sampled.ranks, {2, 3});
  write<int32_t>(ops, out.sampled.top_ids, {5, 6, 7, 8});
  write<float>(ops, out.sampled.top_logprobs, {-0.25f, -0.5f, -1, -2});
  write<int32_t>(ops, out.sampled.top_ranks, {1, 2, 1, 2});
  write<float>(ops, out.scored.logprobs, {-3, -4, -5});
  write<int32_t>(ops, out.scored.ranks, {9, 8, 7});
  write<int32_t>(ops, out.scored.status, {0, 0, 1});
  write<int32_t>(ops, out.scored.top_ids, {21, 22, 23});
  write<float>(ops, out.scored.top_logprobs, {-0.125f, -0.25f, -0.375f});
  write<int32_t>(ops, out.scored.top_ranks, {1, 1, 1});
}

TEST_CASE("what a step filled on the device comes back row by row, with as many others as each row asks for") {
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    StepOutput output(*ops, limits());
    const StepOutputShape shape{.num_rows = 2, .num_scored = 3, .num_logprobs = 2, .num_prompt_logprobs = 1};
    fill(*ops, output.device(shape));
    output.fetch(shape);
    ops->stream().wait(ops->stream().record());
    const SampledToken first = output.sampled(shape, 0, 0, 2);
    CHECK(first.token_id == 11);
    CHECK(first.logprob == -0.5f);
    CHECK(first.rank == 2);
    CHECK(first.status == SampleStatus::kFine);
    CHECK(first.top == PositionLogprobs{{5, -0.25f, 1}, {6, -0.5f, 2}});
    CHECK(output.sampled(shape, 0, 0, 1).top == PositionLogprobs{{5, -0.25f, 1}});
    CHECK(output.sampled(shape, 0, 0, -1).top.empty());
    const SampledToken broken = output.sampled(shape, 0, 1, 2);
    CHECK(broken.status == SampleStatus::kNonFinite);
    CHECK(broken.top.empty());
    const SampledToken scored = output.scored(shape, 0, 1, 33, 1);
    CHECK(scored.token_id == 33);
    CHECK(scored.logprob == -4);
    CHECK(scored.rank == 8);
    CHECK(scored.top == PositionLogprobs{{22, -0.25f, 1}});
    CHECK(output.scored(shape, 0, 2, 34, 1).status == SampleStatus::kNonFinite);
  }
}

TEST_CASE("rows and entries beyond the limits are refused; a list of ids has room whatever max_logprobs is") {
  Ops& ops = *test::backends().front();
  const StepOutput output(ops, limits());
  CHECK_NOTHROW((void)output.device({.num_rows = 4, .num_logprobs = kMaxLogprobTokenIds}));
  CHECK_THROWS_WITH_AS((void)output.device({.num_rows = 4, .num_logprobs = kMaxLogprobTokenIds + 1}),
                       doctest::Contains("4 rows with 129 logprobs"), Error);
  CHECK_NOTHROW((void)output.device({.num_scored = 3, .num_prompt_logprobs = 2}));
  CHECK_THROWS_AS((void)output.device({.num_scored = 3, .num_prompt_logprobs = 3}), Error);
}

TEST_CASE("an entry of the widest step takes 12 bytes, on both sides the same") {
  RunnerLimits more = limits();
  more.max_logprobs = kMaxLogprobTokenIds + 64;
  RunnerLimits fewer = limits();
  fewer.max_logprobs = kMaxLogprobTokenIds;
  CHECK(StepOutput::device_bytes(more) - StepOutput::device_bytes(fewer) == 64 * (4 + 3) * 12);
}

}  // namespace
}  // namespace tokenmill
