#include "engine/row_times.h"

#include <doctest/doctest.h>

namespace tokenmill {
namespace {

TEST_CASE("a row's times follow from its marks") {
  RequestTiming timing{.pulled_s = 10, .first_scheduled_s = 12};
  Histogram itl_s;
  for (const double now_s : {15.0, 16.0, 16.0, 19.0}) note_emission(timing, now_s, itl_s);  // two tokens in one step
  timing.finished_s = 20;
  const RowTimes times = row_times(timing, 4);
  CHECK(times.queue_s == 2);
  CHECK(times.prefill_s == 3);
  CHECK(times.ttft_s == 5);
  CHECK(times.decode_s == 4);
  CHECK(times.inference_s == 7);
  CHECK(times.itl_mean_s == 2);
  CHECK(times.itl_max_s == 3);
  CHECK(*times.tpot_s == doctest::Approx(4.0 / 3));
  CHECK(times.e2e_s == 10);
  CHECK(itl_s.count() == 2);
  CHECK(itl_s.sum() == 4);
}

TEST_CASE("a row that got nowhere has no times but the whole") {
  const RowTimes refused = row_times({.pulled_s = 1, .finished_s = 4}, 0);
  CHECK(refused.e2e_s == 3);
  CHECK_FALSE(refused.queue_s);
  CHECK_FALSE(refused.ttft_s);
  RequestTiming timing{.pulled_s = 0, .first_scheduled_s = 1, .finished_s = 4};
  CHECK(row_times(timing, 0).queue_s == 1);
  CHECK_FALSE(row_times(timing, 0).prefill_s);
  Histogram itl_s;
  note_emission(timing, 2, itl_s);
  CHECK(row_times(timing, 1).decode_s == 0);
  CHECK_FALSE(row_times(timing, 1).tpot_s);
  CHECK_FALSE(row_times(timing, 1).itl_mean_s);
}

TEST_CASE("one token has no TPOT and no interval, and rows with errors are not counted") {
  RequestOutput output{.num_prompt_tokens = 7, .num_completion_tokens = 1};
  output.timing = {.pulled_s = 0, .first_scheduled_s = 1, .first_token_s = 2, .last_token_s = 2, .finished_s = 2};
  Distributions d;
  note_finished(output, d);
  CHECK(d.ttft_s.sum() == 2);
  CHECK(d.decode_s.count() == 1);
  CHECK(d.tpot_s.count() == 0);
  CHECK(d.prompt_tokens.sum() == 7);
  output.error = RequestError{"internal", "", "x"};
  note_finished(output, d);
  CHECK(d.e2e_s.count() == 1);
}

}  // namespace
}  // namespace tokenmill
