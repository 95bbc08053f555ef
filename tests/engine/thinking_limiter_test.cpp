#include "engine/thinking_limiter.h"

#include <doctest/doctest.h>

#include <vector>

using namespace tokenmill;

namespace {

using Ids = std::vector<int32_t>;

/// What comes out when the model wants `wanted` and the limiter has the last word.
Ids generate(const ThinkingBudget& budget, const Ids& wanted) {
  const ThinkingLimiter limiter(budget);
  Ids out;
  for (const int32_t id : wanted) {
    const int32_t forced = limiter.forced(out);
    out.push_back(forced < 0 ? id : forced);
  }
  return out;
}

ThinkingBudget budget(int64_t max_tokens, int64_t num_prompt_tokens = -1) {
  return {max_tokens, {90}, {91}, num_prompt_tokens};
}

}  // namespace

TEST_CASE("thinking that is used up is ended; shorter thinking is left alone") {
  CHECK(generate(budget(2), {90, 1, 2, 3, 4}) == Ids{90, 1, 2, 91, 4});
  CHECK(generate(budget(2), {90, 1, 91, 3, 4, 5}) == Ids{90, 1, 91, 3, 4, 5});
  CHECK(generate(budget(2), {90, 1, 2, 91, 4}) == Ids{90, 1, 2, 91, 4});
  CHECK(generate(budget(0), {7, 90, 1, 2}) == Ids{7, 90, 91, 2});
  CHECK(generate(budget(2), {1, 2, 3, 4, 5}) == Ids{1, 2, 3, 4, 5});
}

TEST_CASE("every stretch of thinking has the whole budget; a second start marker inside one does not renew it") {
  CHECK(generate(budget(1), {90, 1, 2, 90, 3, 4, 5}) == Ids{90, 1, 91, 90, 3, 91, 5});
  CHECK(generate(budget(3), {90, 1, 90, 2, 3, 4, 5, 6}) == Ids{90, 1, 90, 2, 91, 4, 5, 6});
}

TEST_CASE("thinking that the prompt has opened counts, with what the prompt holds of it") {
  CHECK(generate(budget(3, 0), {1, 2, 3, 4, 5}) == Ids{1, 2, 3, 91, 5});
  CHECK(generate(budget(3, 2), {1, 2, 3}) == Ids{1, 91, 3});
  CHECK(generate(budget(3, 9), {1, 2, 3}) == Ids{91, 2, 3});
  CHECK(generate(budget(3, 0), {1, 91, 3, 4, 5}) == Ids{1, 91, 3, 4, 5});
}

TEST_CASE("markers of several tokens are forced whole") {
  const ThinkingBudget markers{2, {80, 81}, {82, 83, 84}, -1};
  CHECK(generate(markers, {80, 81, 1, 2, 3, 4, 5, 6}) == Ids{80, 81, 1, 2, 82, 83, 84, 6});
  CHECK(generate({1, {80, 81}, {82, 83}, 0}, {1, 2, 3, 4}) == Ids{1, 82, 83, 4});
}

TEST_CASE("what a prompt leaves open") {
  CHECK(num_open_thinking_tokens(Ids{1, 2}, Ids{90}, Ids{91}) == -1);
  CHECK(num_open_thinking_tokens(Ids{1, 90}, Ids{90}, Ids{91}) == 0);
  CHECK(num_open_thinking_tokens(Ids{90, 1, 91, 90, 2, 3}, Ids{90}, Ids{91}) == 2);
  CHECK(num_open_thinking_tokens(Ids{90, 1, 91, 2}, Ids{90}, Ids{91}) == -1);
}
