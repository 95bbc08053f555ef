#include "engine/admission.h"

#include <doctest/doctest.h>

namespace tokenmill {
namespace {

using Ids = std::vector<int32_t>;

Sequence sequence(int64_t num_prompt_tokens, int64_t max_new_tokens) {
  return Sequence(0, std::make_shared<const Ids>(static_cast<size_t>(num_prompt_tokens), 1),
                  num_prompt_tokens + max_new_tokens, SequenceSampling{std::make_shared<const SamplingParams>()});
}

TEST_CASE("lengths are guessed until enough rows have finished, then come from them") {
  LengthPredictor lengths(100);
  CHECK(lengths.predict(sequence(10, 1000)) == 110);
  CHECK(lengths.predict(sequence(10, 50)) == 60);
  for (int i = 0; i < 15; ++i) lengths.add(7);
  CHECK(lengths.predict(sequence(10, 1000)) == 110);
  lengths.add(7);
  CHECK(lengths.predict(sequence(10, 1000)) == 17);
}

TEST_CASE("nine of ten rows stay below the prediction, which is at most a sixteenth above the quantile") {
  LengthPredictor lengths(1);
  for (int64_t length = 1; length <= 1000; ++length) lengths.add(length);
  const int64_t predicted = lengths.predict(sequence(1, 100000)) - 1;
  CHECK(predicted >= 900);
  CHECK(predicted <= 900 * 17 / 16);
  for (int i = 0; i < 20000; ++i) lengths.add(int64_t{1} << 40);
  CHECK(lengths.predict(sequence(1, 100000)) == 100001);  // never above max_tokens
}

TEST_CASE("the blocks that running sequences will still take are not given to another") {
  RunnerLimits limits;
  limits.kv_groups = {{.block_size = 16}};
  limits.num_blocks = {10};
  limits.max_num_batched_tokens = 64;
  BlockManager blocks(limits.kv_groups, limits.num_blocks, true);
  Admission admission(limits, {.first_length_guess = 33, .watermark = 0.25});
  admission.begin(blocks, {});
  CHECK(admission.fits(blocks, sequence(64, 100), blocks.no_hit()));  // 64 and 33 tokens, the last not computed: 6
  CHECK(admission.fits(blocks, sequence(96, 100), blocks.no_hit()));  // 8, and 2 of 10 stay free
  CHECK_FALSE(admission.fits(blocks, sequence(97, 100), blocks.no_hit()));
  CHECK(admission.fits(blocks, sequence(97, 10), blocks.no_hit()));
}

TEST_CASE("a window needs its blocks and those of a chunk for every step in flight") {
  RunnerLimits limits;
  limits.kv_groups = {{.kind = KvSpec::Kind::kSlidingWindow, .window = 17, .block_size = 16}};
  limits.max_num_batched_tokens = 32;
  for (const auto& [steps_in_flight, num_blocks] : {std::pair(1, int64_t{4}), {3, int64_t{8}}}) {
    limits.max_steps_in_flight =
        steps_in_flight;  // one block of the window, 2 a chunk, one where a chunk begins inside
    for (const int64_t there : {num_blocks - 1, num_blocks}) {
      limits.num_blocks = {there};
      BlockManager blocks(limits.kv_groups, limits.num_blocks, true);
      Admission admission(limits, {.watermark = 0});
      admission.begin(blocks, {});
      CHECK(admission.fits(blocks, sequence(1000, 10), blocks.no_hit()) == (there == num_blocks));
    }
  }
  // A short prompt is never more in flight than it is long.
  limits.num_blocks = {4};
  BlockManager blocks(limits.kv_groups, limits.num_blocks, true);
  Admission admission(limits, {.watermark = 0});
  admission.begin(blocks, {});
  CHECK(admission.fits(blocks, sequence(30, 1000), blocks.no_hit()));
}

}  // namespace
}  // namespace tokenmill
