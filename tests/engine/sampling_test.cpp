#include "engine/sampling.h"

#include <doctest/doctest.h>

#include <limits>
#include <set>

namespace tokenmill {
namespace {

const double kNaN = std::numeric_limits<double>::quiet_NaN();
const double kInfinity = std::numeric_limits<double>::infinity();

std::string message(const SamplingParams& params) {
  const std::optional<FieldError> error = check(params, 100);
  return error ? error->field + ": " + error->message : "";
}

TEST_CASE("values at the edges of their ranges are accepted") {
  for (const double temperature : {0.0, 1e-40, 1.0, 2.0}) CHECK(message({.temperature = temperature}) == "");
  for (const double top_p : {1e-300, 0.5, 1.0}) CHECK(message({.top_p = top_p}) == "");
  for (const int64_t top_k : {int64_t{-1}, int64_t{0}, int64_t{1}, std::numeric_limits<int64_t>::max()}) {
    CHECK(message({.top_k = top_k}) == "");
  }
  for (const double min_p : {0.0, 1.0}) CHECK(message({.min_p = min_p}) == "");
  CHECK(message({.max_tokens = 1}) == "");
  CHECK(message({.stop = {"a", "bc"}, .stop_token_ids = {0, 99}}) == "");
}

TEST_CASE("a value outside its range names the field, what was found and what is allowed") {
  CHECK(message({.temperature = -1}) == "temperature: temperature is -1; it must be between 0 and 2");
  CHECK(message({.temperature = 2.0000001}) == "temperature: temperature is 2.0000001; it must be between 0 and 2");
  CHECK(message({.temperature = kNaN}) == "temperature: temperature is nan; it must be between 0 and 2");
  CHECK(message({.temperature = kInfinity}) == "temperature: temperature is inf; it must be between 0 and 2");
  CHECK(message({.top_p = 0}) == "top_p: top_p is 0; it must be above 0 and at most 1");
  CHECK(message({.top_p = kNaN}) == "top_p: top_p is nan; it must be above 0 and at most 1");
  CHECK(message({.top_k = -2}) == "top_k: top_k is -2; it must be at least 1, or 0 or -1 for no limit");
  CHECK(message({.min_p = 1.5}) == "min_p: min_p is 1.5; it must be between 0 and 1");
  CHECK(message({.max_tokens = 0}) == "max_tokens: max_tokens is 0; it must be at least 1");
  CHECK(message({.stop = {"a", ""}}) == "stop: stop[1] is an empty string; give text of at least one character");
  CHECK(message({.stop_token_ids = {5, 100}}) ==
        "stop_token_ids: stop_token_ids[1] is 100; it must be between 0 and 99, the last id of the vocabulary");
  CHECK(message({.stop_token_ids = {-1}}) ==
        "stop_token_ids: stop_token_ids[0] is -1; it must be between 0 and 99, the last id of the vocabulary");
}

TEST_CASE("a temperature below 1e-5 is greedy and neutralizes the filters") {
  for (const double temperature : {0.0, 1e-40, 9.99e-6}) {
    const SamplingParams greedy = normalized({.temperature = temperature, .top_p = 0.5, .top_k = 7, .min_p = 0.25});
    CHECK(greedy == SamplingParams{.temperature = 0});
  }
  CHECK(normalized({.temperature = 1e-5, .top_p = 0.5}) == SamplingParams{.temperature = 0.01, .top_p = 0.5});
  CHECK(normalized({.temperature = 0.00999}).temperature == 0.01);
  CHECK(normalized({.temperature = 0.02, .top_k = -1}) == SamplingParams{.temperature = 0.02, .top_k = 0});
}

TEST_CASE("the slot's values stay inside what the sampler can choose from") {
  const SlotSampling slot = slot_sampling({.temperature = 0.5, .top_p = 1e-300, .top_k = 5, .min_p = 0.25}, 9, 100);
  CHECK(slot.temperature == 0.5f);
  CHECK(slot.top_p > 0);
  CHECK(slot.top_k == 5);
  CHECK(slot.min_p == 0.25f);
  CHECK(slot.key == 9);
  for (const int64_t top_k : {int64_t{0}, int64_t{100}, std::numeric_limits<int64_t>::max()}) {
    CHECK(slot_sampling({.top_k = top_k}, 0, 100).top_k == 0);
  }
}

TEST_CASE("every request and every sample of it has a key of its own, the same in every version") {
  std::set<uint64_t> keys;
  for (const uint64_t random_key : {uint64_t{0}, uint64_t{1}, uint64_t{42}, ~uint64_t{0}}) {
    for (int index = 0; index < 16; ++index) keys.insert(sample_key(random_key, index));
  }
  CHECK(keys.size() == 64);
  // What rows drew in earlier versions must be drawn again.
  CHECK(sample_key(42, 0) == 0x97ea87f7e45c00a5u);
  CHECK(sample_key(42, 1) == 0x989b3f130a063869u);
  CHECK(sample_key(~uint64_t{0}, 3) == 0x5176985d86cff511u);
}

}  // namespace
}  // namespace tokenmill
