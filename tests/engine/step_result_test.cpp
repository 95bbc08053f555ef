#include "engine/step_result.h"

#include <doctest/doctest.h>

#include <random>

#include "kernels/core/error.h"

namespace tokenmill {
namespace {

std::vector<SampledToken> random_tokens(std::mt19937_64& random) {
  std::vector<SampledToken> tokens(random() % 3);
  for (SampledToken& token : tokens) {
    token = {static_cast<int32_t>(random()), -0.25f * static_cast<float>(random() % 100),
             static_cast<SampleStatus>(random() % 3), static_cast<int32_t>(random())};
    for (size_t i = random() % 3; i > 0; --i)
      token.top.push_back({static_cast<int32_t>(random()), -1.5f, static_cast<int32_t>(random())});
  }
  return tokens;
}

StepResult random_result(std::mt19937_64& random) {
  StepResult result{random(), {}, {}};
  for (size_t i = random() % 4; i > 0; --i)
    result.slots.push_back({static_cast<int32_t>(random()), random_tokens(random), random_tokens(random),
                            std::vector<float>(random() % 3, -0.5f), std::vector<float>(random() % 3, 1.5f)});
  return result;
}

bool equal(const std::vector<SampledToken>& a, const std::vector<SampledToken>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const SampledToken& x, const SampledToken& y) {
    return x.token_id == y.token_id && x.logprob == y.logprob && x.status == y.status && x.rank == y.rank &&
           x.top == y.top;
  });
}

TEST_CASE("a result comes back from its bytes") {
  std::mt19937_64 random(11);
  for (int i = 0; i < 500; ++i) {
    const StepResult result = random_result(random);
    const StepResult read = deserialize_step_result(serialize(result));
    REQUIRE(read.step_id == result.step_id);
    REQUIRE(read.slots.size() == result.slots.size());
    for (size_t s = 0; s < read.slots.size(); ++s) {
      REQUIRE(read.slots[s].slot == result.slots[s].slot);
      REQUIRE(equal(read.slots[s].tokens, result.slots[s].tokens));
      REQUIRE(equal(read.slots[s].scored, result.slots[s].scored));
      REQUIRE(read.slots[s].listed == result.slots[s].listed);
      REQUIRE(read.slots[s].hidden == result.slots[s].hidden);
    }
  }
}

TEST_CASE("damaged results are refused, never read past their end") {
  std::mt19937_64 random(12);
  for (int i = 0; i < 100; ++i) {
    const std::vector<std::byte> bytes = serialize(random_result(random));
    for (size_t n = 0; n < bytes.size(); ++n)
      REQUIRE_THROWS_WITH_AS(deserialize_step_result(std::span(bytes).first(n)),
                             doctest::Contains("step result of"), Error);
    std::vector<std::byte> longer = bytes;
    longer.push_back({});
    REQUIRE_THROWS_WITH_AS(deserialize_step_result(longer), doctest::Contains("has 1 more bytes"), Error);
  }
  std::vector<std::byte> bytes = serialize(StepResult{});
  bytes.front() = std::byte{4};
  CHECK_THROWS_WITH_AS(deserialize_step_result(bytes), doctest::Contains("is 4; this program knows 3"), Error);
}

}  // namespace
}  // namespace tokenmill
