// Random jobs that are stopped at any step, and what they had come to given to another engine: the same results, and no
// token generated twice.
#include <doctest/doctest.h>

#include <map>
#include <random>

#include "engine/engine.h"
#include "tests/engine/random_jobs.h"
#include "tests/support/fake_decoder.h"
#include "tests/support/fake_runner.h"
#include "tests/support/sanitized.h"

namespace tokenmill {
namespace {

using test::Job;

struct Outcome {
  std::map<int64_t, RequestOutput> outputs;
  int64_t num_generation_tokens = 0, num_pieces = 0, num_restored = 0, num_ended_samples = 0;
  bool has_internal_errors = false;
};

void take(Engine& engine, Outcome& outcome) {
  for (RequestOutput& output : engine.take_finished()) {
    outcome.has_internal_errors = outcome.has_internal_errors || (output.error && output.error->code == "internal");
    const int64_t request_id = output.request_id;
    REQUIRE(outcome.outputs.emplace(request_id, std::move(output)).second);
  }
}

/// One engine's share: at most num_steps, the last num_draining of them without admission. Fills progress.
void run_piece(const Job& job, const RunnerLimits& limits, int64_t num_steps, int64_t num_draining,
               std::map<int64_t, RequestProgress>& progress, Outcome& outcome) {
  test::FakeRunner runner(job.model, limits);
  Engine engine(runner, test::fake_decoders(job.pieces), job.options);
  for (const Request& request : job.requests) {
    if (outcome.outputs.contains(request.request_id)) continue;
    Request again = request;
    if (const auto saved = progress.find(request.request_id); saved != progress.end()) again.progress = saved->second;
    engine.submit(std::move(again));
  }
  take(engine, outcome);
  for (int64_t step = 0; step < num_steps && !engine.idle(); ++step) {
    if (step + num_draining >= num_steps) engine.close_admission();
    if (!engine.step()) break;
    take(engine, outcome);
  }
  for (auto& [request_id, saved] : engine.take_unfinished()) {
    ++outcome.num_restored;
    for (const SampleProgress& sample : saved.samples) outcome.num_ended_samples += sample.token_ids.empty() ? 0 : 1;
    const auto before = progress.find(request_id);
    if (before != progress.end())
      for (size_t i = 0; i < saved.samples.size(); ++i)
        REQUIRE(saved.samples[i].token_ids.size() >= before->second.samples[i].token_ids.size());
    progress[request_id] = std::move(saved);
  }
  take(engine, outcome);
  outcome.num_generation_tokens += engine.stats().num_generation_tokens;
  ++outcome.num_pieces;
}

void check_equal(const RequestOutput& got, const RequestOutput& expected) {
  REQUIRE(got.error.has_value() == expected.error.has_value());
  if (got.error) REQUIRE(got.error->message == expected.error->message);
  REQUIRE(got.prompt_logprobs == expected.prompt_logprobs);
  REQUIRE(got.prompt_token_id_logprobs == expected.prompt_token_id_logprobs);
  REQUIRE(got.hidden_state == expected.hidden_state);
  REQUIRE(got.num_completion_tokens == expected.num_completion_tokens);
  REQUIRE(got.outputs.size() == expected.outputs.size());
  for (size_t i = 0; i < got.outputs.size(); ++i) {
    REQUIRE(got.outputs[i].token_ids == expected.outputs[i].token_ids);
    REQUIRE(got.outputs[i].text == expected.outputs[i].text);
    REQUIRE(got.outputs[i].logprobs == expected.outputs[i].logprobs);
    REQUIRE(got.outputs[i].finish_reason == expected.outputs[i].finish_reason);
    REQUIRE(got.outputs[i].stop_reason == expected.outputs[i].stop_reason);
    REQUIRE(got.outputs[i].cumulative_logprob == expected.outputs[i].cumulative_logprob);
  }
}

TEST_CASE("requests that are stopped at any step go on in another engine to the same results, no token twice") {
  int64_t num_pieces = 0, num_restored = 0, num_samples = 0, num_jobs = 0;
  for (uint64_t seed = 0; seed < (test::kSanitized ? 200 : 2000); ++seed) {
    CAPTURE(seed);
    const Job job = test::make_job(seed);
    Outcome whole, stopped;
    std::map<int64_t, RequestProgress> none, progress;
    run_piece(job, job.limits, 100000, 0, none, whole);
    REQUIRE(whole.outputs.size() == job.requests.size());
    std::mt19937_64 random(seed);
    while (stopped.outputs.size() < job.requests.size()) {
      RunnerLimits limits = job.limits;
      limits.max_steps_in_flight = limits.num_stages - 1 + static_cast<int>(1 + random() % 3);
      const auto num_steps = static_cast<int64_t>(2 + random() % 30) + stopped.num_pieces;
      run_piece(job, limits, num_steps, static_cast<int64_t>(random() % 4), progress, stopped);
      REQUIRE(stopped.num_pieces < 1000);
    }
    for (const auto& [request_id, expected] : whole.outputs) check_equal(stopped.outputs.at(request_id), expected);
    if (!whole.has_internal_errors) REQUIRE(stopped.num_generation_tokens == whole.num_generation_tokens);
    num_jobs += whole.has_internal_errors ? 0 : 1;
    num_pieces += stopped.num_pieces;
    num_restored += stopped.num_restored;
    num_samples += stopped.num_ended_samples;
  }
  MESSAGE("engines " << num_pieces << ", requests given on " << num_restored << ", samples " << num_samples
                     << ", jobs whose tokens were counted " << num_jobs);
  CHECK(num_restored > 200);
  CHECK(num_samples > num_restored);
  CHECK(num_jobs > 100);
}

}  // namespace
}  // namespace tokenmill
