// Thousands of small random jobs through the engine on the fake runner: every request must finish exactly once with
// what one-at-a-time execution gives, and nothing may be left behind. The fake runner checks every plan.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "engine/engine.h"
#include "engine/sample_constraints.h"
#include "tests/engine/random_jobs.h"
#include "tests/support/fake_decoder.h"
#include "tests/support/fake_runner.h"
#include "tests/support/sanitized.h"

namespace tokenmill {
namespace {

using test::blocks_to_run;
using test::Job;
using test::make_job;
using Ids = std::vector<int32_t>;

/// What a sample's result must be, written down without any of the engine's machinery.
struct Expected {
  Ids token_ids;
  std::string text, stop_string;
  FinishReason finish_reason = FinishReason::kLength;
  std::optional<int32_t> stop_id;
  double cumulative_logprob = 0;
  std::vector<PositionLogprobs> logprobs;
};

struct ExpectedRequest {
  std::vector<Expected> samples;
  std::vector<PositionLogprobs> prompt_logprobs;
  std::vector<float> listed;
  std::vector<float> hidden;
  std::string error_code;
};

struct Tally {
  int64_t requests = 0, refused = 0, failed = 0, stopped = 0, lengths = 0, dropped = 0, chunked = 0, scored = 0,
          constrained = 0, preempted = 0, recomputed = 0, hits = 0, shared = 0, pipelined = 0, listed = 0,
          hidden = 0, preempted_in_pipelines = 0;
};

bool wants_hidden(const Request& request) { return request.sampling.hidden_states != HiddenStates::kNone; }

/// As the fake runner gives it.
std::vector<float> hidden_of(const Job& job, const Request& request) {
  if (!wants_hidden(request)) return {};
  const std::span<const int32_t> prompt(request.prompt_token_ids);
  const bool mean = request.sampling.hidden_states == HiddenStates::kMean;
  std::vector<float> hidden = {0, 0};
  for (size_t length = mean ? 1 : prompt.size(); length <= prompt.size(); ++length, ++hidden[1])
    hidden[0] += job.model.hidden(prompt.first(length));
  return hidden;
}

bool refused(const Job& job, const Request& request) {
  const auto num_prompt_tokens = static_cast<int64_t>(request.prompt_token_ids.size());
  const RunnerLimits& limits = job.limits;
  const bool score_only = request.sampling.max_tokens == 0;
  if (num_prompt_tokens == 0 || num_prompt_tokens + (score_only ? 0 : 1) > limits.max_model_len) return true;
  if (request.prompt_token_ids.back() >= limits.vocab_size) return true;
  const PromptLogprobIds& lists = request.sampling.prompt_logprob_ids;
  if (lists.width > 0 && static_cast<int64_t>(lists.ids.size()) != lists.width * (num_prompt_tokens - 1 - lists.start))
    return true;
  if (!job.options.scheduler.enable_chunked_prefill && num_prompt_tokens > limits.max_num_batched_tokens) return true;
  const int64_t longest =
      std::min(limits.max_model_len, num_prompt_tokens + request.sampling.max_tokens.value_or(1000)) -
      (request.sampling.max_tokens == 0 && wants_hidden(request) ? 0 : 1);
  for (size_t g = 0; g < limits.kv_groups.size(); ++g) {
    const KvSpec& spec = limits.kv_groups[g];
    int64_t needed = blocks_to_run(spec, longest);
    if (!job.options.scheduler.enable_chunked_prefill) {
      needed = std::max(needed, (std::min(num_prompt_tokens, longest) + spec.block_size - 1) / spec.block_size);
    }
    if (needed > limits.num_blocks[g]) return true;
  }
  return false;
}

std::string decode(const Job& job, const Ids& ids, bool at_end) {
  test::FakeDecoder decoder(job.pieces);
  std::string text;
  for (const int32_t id : ids) decoder.append(id, text);
  if (at_end) decoder.finish(text);
  return text;
}

/// Cuts text at its first stop string, position by position.
bool cut(const SamplingParams& sampling, Expected& expected) {
  for (size_t at = 0; at < expected.text.size(); ++at) {
    const std::string* shortest = nullptr;
    for (const std::string& stop : sampling.stop) {
      const bool here = expected.text.compare(at, stop.size(), stop) == 0;
      if (here && (shortest == nullptr || stop.size() < shortest->size())) shortest = &stop;
    }
    if (shortest == nullptr) continue;
    expected.text.resize(at + (sampling.include_stop_str_in_output ? shortest->size() : 0));
    expected.finish_reason = FinishReason::kStop;
    expected.stop_string = *shortest;
    expected.stop_id.reset();
    return true;
  }
  return false;
}

StepConstraints constraints_of(const Job& job, const SamplingParams& sampling, const Ids& generated) {
  StepConstraints out;
  if (generated.size() < sampling.trace_decode_token_ids.size()) {
    out.forced_token_id = sampling.trace_decode_token_ids[generated.size()];
  }
  if (static_cast<int64_t>(generated.size()) < sampling.min_tokens) {
    out.masked_token_ids = sampling.stop_token_ids;
    if (!sampling.ignore_eos) {
      out.masked_token_ids.insert(out.masked_token_ids.end(), job.options.eos_token_ids.begin(),
                                  job.options.eos_token_ids.end());
    }
  }
  for (const Ids& word : sampling.bad_words) {
    Ids longer = generated;
    longer.push_back(word.back());
    const bool ends_with = longer.size() >= word.size() && std::equal(word.rbegin(), word.rend(), longer.rbegin());
    if (ends_with) out.masked_token_ids.push_back(word.back());
  }
  return out;
}

std::optional<Expected> run_sample(const Job& job, const Request& request, int index) {
  const SamplingParams& sampling = request.sampling;
  const auto contains = [](const Ids& ids, int32_t id) { return std::count(ids.begin(), ids.end(), id) > 0; };
  Expected expected;
  if (sampling.max_tokens == 0) return expected;
  Ids all = request.prompt_token_ids;
  Ids shown;  // ids that count for the text
  while (true) {
    const SampledToken token =
        job.model.next(all, sample_key(request.random_key, index), constraints_of(job, sampling, expected.token_ids));
    if (token.status != SampleStatus::kFine) return std::nullopt;
    const int32_t id = token.token_id;
    all.push_back(id);
    expected.token_ids.push_back(id);
    expected.cumulative_logprob += static_cast<double>(token.logprob);
    if (sampling.logprobs) expected.logprobs.push_back(position_logprobs(token));
    const bool may_end = static_cast<int64_t>(expected.token_ids.size()) >= sampling.min_tokens;  // a trace may not
    const bool eos = may_end && !sampling.ignore_eos && contains(job.options.eos_token_ids, id);
    const bool stop_id = may_end && !eos && contains(sampling.stop_token_ids, id);
    if (!(eos || stop_id) || sampling.include_stop_str_in_output) shown.push_back(id);
    const bool length = static_cast<int64_t>(all.size()) == job.limits.max_model_len ||
                        static_cast<int64_t>(expected.token_ids.size()) == sampling.max_tokens.value_or(-1);
    expected.text = decode(job, shown, false);
    if (eos || stop_id || length) {
      expected.finish_reason = eos || stop_id ? FinishReason::kStop : FinishReason::kLength;
      if (stop_id) expected.stop_id = id;
      if (!eos && !stop_id && cut(sampling, expected)) return expected;
      expected.text = decode(job, shown, true);
      cut(sampling, expected);
      return expected;
    }
    if (cut(sampling, expected)) return expected;
  }
}

ExpectedRequest run_alone(const Job& job, const Request& request) {
  if (refused(job, request)) return {.error_code = "invalid_request"};
  const SamplingParams& sampling = request.sampling;
  ExpectedRequest expected;
  const std::span<const int32_t> prompt(request.prompt_token_ids);
  for (size_t i = 1; sampling.prompt_logprobs && i < prompt.size(); ++i) {
    const auto count = static_cast<int32_t>(*sampling.prompt_logprobs);
    expected.prompt_logprobs.push_back(position_logprobs(job.model.score(prompt.first(i), prompt[i], count)));
  }
  const PromptLogprobIds& lists = sampling.prompt_logprob_ids;
  for (size_t i = 0; i < lists.ids.size(); ++i) {
    const size_t length = static_cast<size_t>(lists.start) + i / static_cast<size_t>(lists.width) + 1;
    expected.listed.push_back(lists.ids[i] < 0 ? -std::numeric_limits<float>::infinity()
                                               : job.model.score(prompt.first(length), lists.ids[i], 0).logprob);
  }
  for (int index = 0; index < (sampling.max_tokens == 0 ? 1 : sampling.n); ++index) {
    std::optional<Expected> sample = run_sample(job, request, index);
    if (!sample) return {.error_code = "internal"};
    expected.samples.push_back(std::move(*sample));
  }
  expected.hidden = hidden_of(job, request);
  return expected;
}

void check_sample(const SequenceOutput& output, const Expected& expected) {
  REQUIRE(output.token_ids == expected.token_ids);
  REQUIRE(output.text == expected.text);
  REQUIRE(output.logprobs == expected.logprobs);
  REQUIRE(output.finish_reason == expected.finish_reason);
  StopReason stop_reason;
  if (!expected.stop_string.empty()) stop_reason = expected.stop_string;
  if (expected.stop_id) stop_reason = *expected.stop_id;
  REQUIRE(output.stop_reason == stop_reason);
  REQUIRE(output.cumulative_logprob == expected.cumulative_logprob);
}

void check_output(const RequestOutput& got, const ExpectedRequest& expected, const Request& request) {
  REQUIRE((got.error ? got.error->code : "") == expected.error_code);
  REQUIRE(got.num_prompt_tokens == static_cast<int64_t>(request.prompt_token_ids.size()));
  REQUIRE(got.outputs.size() == expected.samples.size());
  REQUIRE(got.prompt_logprobs == expected.prompt_logprobs);
  REQUIRE(got.prompt_token_id_logprobs == expected.listed);
  REQUIRE(got.hidden_state == expected.hidden);
  if (got.error) REQUIRE(!got.error->message.empty());
  int64_t num_completion_tokens = 0;
  for (size_t i = 0; i < got.outputs.size(); ++i) {
    REQUIRE(got.outputs[i].index == static_cast<int>(i));
    check_sample(got.outputs[i], expected.samples[i]);
    num_completion_tokens += static_cast<int64_t>(expected.samples[i].token_ids.size());
  }
  REQUIRE(got.num_completion_tokens == num_completion_tokens);
}

void run_job(uint64_t seed, Tally& tally) {
  const Job job = make_job(seed);
  test::FakeRunner runner(job.model, job.limits);
  Engine engine(runner, test::fake_decoders(job.pieces), job.options);
  std::map<int64_t, RequestOutput> outputs;
  size_t next = 0;
  for (int step = 0; next < job.requests.size() || !engine.idle(); ++step) {
    REQUIRE(step < 5000);
    for (; next < job.requests.size() && job.arrivals[next] <= step; ++next) engine.submit(job.requests[next]);
    const bool had_work = !engine.idle();
    REQUIRE(engine.step() == had_work);
    for (RequestOutput& output : engine.take_finished()) {
      const int64_t request_id = output.request_id;
      REQUIRE(outputs.emplace(request_id, std::move(output)).second);
    }
  }
  REQUIRE(outputs.size() == job.requests.size());
  REQUIRE(runner.num_steps_in_flight() == 0);
  REQUIRE(engine.num_unfinished() == 0);

  const EngineStats& stats = engine.stats();
  REQUIRE(stats.num_steps == runner.num_steps());
  REQUIRE(stats.kv_blocks_used_now == 0);
  REQUIRE(stats.num_running_now + stats.num_waiting_now == 0);
  REQUIRE(stats.num_finished + stats.num_failed == static_cast<int64_t>(job.requests.size()));
  int64_t num_prompt_tokens = 0, num_generation_tokens = 0, num_nan = 0;
  for (const Request& request : job.requests) {
    const ExpectedRequest expected = run_alone(job, request);
    const RequestOutput& output = outputs.at(request.request_id);
    check_output(output, expected, request);
    tally.refused += expected.error_code == "invalid_request" ? 1 : 0;
    num_nan += expected.error_code == "internal" ? 1 : 0;
    // The last token of a prompt that is only scored is not computed.
    const bool all_but_one = request.sampling.max_tokens == 0 && !wants_hidden(request);
    if (expected.error_code != "invalid_request") {
      num_prompt_tokens += output.num_prompt_tokens - (all_but_one ? 1 : 0);
    }
    tally.scored += static_cast<int64_t>(output.prompt_logprobs.size());
    tally.hidden += static_cast<int64_t>(output.hidden_state.empty() ? 0 : 1);
    tally.listed += static_cast<int64_t>(output.prompt_token_id_logprobs.size());
    tally.constrained += SampleConstraints(request.sampling, job.options.eos_token_ids).empty() ? 0 : 1;
    if (!output.error) {
      for (const Expected& sample : expected.samples) {
        (sample.finish_reason == FinishReason::kStop ? tally.stopped : tally.lengths) += 1;
      }
      num_generation_tokens += output.num_completion_tokens;
      tally.chunked += output.num_prompt_tokens > job.limits.max_num_batched_tokens ? 1 : 0;
    }
  }
  REQUIRE(stats.num_prompt_tokens == num_prompt_tokens);
  REQUIRE(stats.num_generation_tokens >= num_generation_tokens);  // failed rows had tokens, too
  REQUIRE(stats.prefix_cache_hits <= stats.prefix_cache_queries);
  REQUIRE(stats.num_computed_prompt_tokens + stats.prefix_cache_hits >= stats.num_prompt_tokens);
  if (!job.options.scheduler.enable_prefix_caching) REQUIRE(stats.prefix_cache_queries == 0);
  REQUIRE(stats.sum_kv_waste >= 0);
  REQUIRE(stats.sum_kv_waste <= static_cast<double>(stats.num_steps));
  tally.failed += num_nan;
  tally.preempted += stats.num_preemptions;
  if (job.limits.num_stages > 1) {
    tally.pipelined += static_cast<int64_t>(job.requests.size());
    tally.preempted_in_pipelines += stats.num_preemptions;
  }
  tally.recomputed += stats.num_recomputed_tokens;
  tally.hits += stats.prefix_cache_hits;
  tally.shared += stats.sum_kv_shared_blocks;
  tally.requests += static_cast<int64_t>(job.requests.size());
  tally.dropped += runner.num_sampled_tokens() - stats.num_generation_tokens - num_nan;
}

TEST_CASE("random jobs give every request what it gets alone, once, and leave nothing behind") {
  Tally tally;
  const int64_t share = test::kSanitized ? 10 : 1;  // of 10,000 jobs
  for (uint64_t seed = 0; seed < 10000 / static_cast<uint64_t>(share); ++seed) {
    CAPTURE(seed);
    run_job(seed, tally);
  }
  MESSAGE("requests " << tally.requests << ", refused " << tally.refused << ", failed " << tally.failed << ", stopped "
                      << tally.stopped << ", length " << tally.lengths << ", longer than a step " << tally.chunked
                      << ", tokens dropped after an end " << tally.dropped << ", prompt tokens scored " << tally.scored
                      << ", constrained " << tally.constrained << ", preemptions " << tally.preempted
                      << ", tokens computed again " << tally.recomputed << ", found cached " << tally.hits
                      << ", shared blocks summed over steps " << tally.shared);
  // The jobs must meet what they are there to test.
  CHECK(tally.refused > 500 / share);
  CHECK(tally.failed > 500 / share);
  CHECK(tally.stopped > 5000 / share);
  CHECK(tally.lengths > 5000 / share);
  CHECK(tally.chunked > 500 / share);
  CHECK(tally.dropped > 5000 / share);
  CHECK(tally.scored > 5000 / share);
  CHECK(tally.constrained > 5000 / share);
  CHECK(tally.preempted > 1000 / share);
  CHECK(tally.recomputed > 5000 / share);
  CHECK(tally.hits > 10000 / share);
  CHECK(tally.shared > 20000 / share);
  CHECK(tally.hidden > 5000 / share);
  CHECK(tally.listed > 5000 / share);
  CHECK(tally.pipelined > 20000 / share);
  CHECK(tally.preempted_in_pipelines > 500 / share);
}

}  // namespace
}  // namespace tokenmill
