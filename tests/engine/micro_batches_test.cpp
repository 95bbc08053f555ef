#include "engine/micro_batches.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace tokenmill {
namespace {

RunnerLimits limits_of(int num_stages, int max_steps_in_flight) {
  RunnerLimits limits;
  limits.max_num_batched_tokens = 1000;
  limits.num_stages = num_stages;
  limits.max_steps_in_flight = max_steps_in_flight;
  return limits;
}

TEST_CASE("one stage takes everything, however many steps are in flight") {
  const MicroBatches batches(limits_of(1, 3), {});
  CHECK(batches.decode_share(64) == 64);
  CHECK(batches.prompt_share(10, 64) == 1000);
}

TEST_CASE("the parts of a round add up to all decodes and differ by one at most") {
  for (const int in_flight : {2, 3, 4, 7}) {
    for (const int64_t num_decodes : {1, 2, 7, 64, 65, 1023}) {
      CAPTURE(in_flight);
      CAPTURE(num_decodes);
      MicroBatches batches(limits_of(2, in_flight), {});
      std::vector<int64_t> parts;
      for (int i = 0; i < in_flight; ++i) {
        parts.push_back(batches.decode_share(num_decodes));
        batches.launched(0);
      }
      const int64_t even = num_decodes / in_flight;
      for (const int64_t part : parts) CHECK((part == std::max<int64_t>(1, even) || part == even + 1));
      if (num_decodes >= in_flight) CHECK(std::accumulate(parts.begin(), parts.end(), int64_t{0}) == num_decodes);
    }
  }
}

TEST_CASE("prompts are cut into equal parts for some rounds, the last plans counted, within a plan's bounds") {
  MicroBatches batches(limits_of(4, 4), {.min_pipeline_tokens = 50});
  int64_t left = 3200;
  for (int i = 0; i < 16; ++i) {
    CHECK(batches.prompt_share(left, 0) == 200);
    batches.launched(200);
    left -= 200;
  }
  CHECK(left == 0);
  CHECK(batches.prompt_share(200, 0) == 200);  // as much as before
  batches.launched(0);
  CHECK(batches.prompt_share(200, 0) == 188);
  CHECK(batches.prompt_share(1000000, 0) == 1000);
  batches.drained();
  CHECK(batches.prompt_share(10, 20) == 30);
  CHECK(batches.prompt_share(10, 80) == 1);
}

}  // namespace
}  // namespace tokenmill
