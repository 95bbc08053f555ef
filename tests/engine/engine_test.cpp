#include "engine/engine.h"

#include <doctest/doctest.h>

#include <deque>

#include "engine/text/tokenizer_loader.h"
#include "io/json.h"
#include "kernels/core/error.h"
#include "tests/support/fake_runner.h"

namespace tokenmill {
namespace {

using Ids = std::vector<int32_t>;

RunnerLimits small_limits() {
  RunnerLimits limits;
  limits.kv_groups = {{.block_size = 16}};
  limits.num_blocks = {8};
  limits.max_num_seqs = 4;
  limits.max_num_batched_tokens = 16;
  limits.max_logits_rows = 4;
  limits.max_model_len = 64;
  limits.vocab_size = 272;
  return limits;
}

/// Samples the script's tokens one after the other, whatever it is asked, and takes one second per step.
class ScriptedRunner final : public Runner {
 public:
  ScriptedRunner(std::vector<SampledToken> script, ManualClock& clock) : script_(std::move(script)), clock_(clock) {}
  const RunnerLimits& limits() const override { return limits_; }
  Ticket launch(const StepPlan& plan) override {
    StepResult& result = results_.emplace_back();
    result.step_id = plan.step_id;
    for (const ScheduledSlot& slot : plan.scheduled) {
      if (slot.logits_rows.empty()) continue;
      result.slots.push_back({slot.slot, {script_.at(next_++)}});
    }
    return plan.step_id;
  }
  StepResult collect(Ticket) override {
    clock_.advance(1);
    StepResult result = std::move(results_.front());
    results_.pop_front();
    return result;
  }

 private:
  RunnerLimits limits_ = small_limits();
  std::vector<SampledToken> script_;
  ManualClock& clock_;
  size_t next_ = 0;
  std::deque<StepResult> results_;
};

std::vector<SampledToken> script(const Ids& ids) {
  std::vector<SampledToken> tokens;
  for (const int32_t id : ids) tokens.push_back({id, -0.25f, SampleStatus::kFine});
  return tokens;
}

RequestOutput run_one(Engine& engine, Request request) {
  engine.submit(std::move(request));
  while (engine.step()) {
  }
  std::vector<RequestOutput> outputs = engine.take_finished();
  REQUIRE(outputs.size() == 1);
  return outputs.front();
}

/// One request whose samples are scripted, through the tokenizer of the edge cases.
RequestOutput run_scripted(const Ids& ids, const SamplingParams& sampling, const Ids& eos = {}) {
  static const text::Tokenizer tokenizer =
      text::load_tokenizer_json(io::parse_json_file(TM_TEST_DATA "/cases/tiny_bpe.json"), {}, "tiny_bpe.json");
  ManualClock clock;
  ScriptedRunner runner(script(ids), clock);
  Engine engine(runner, &tokenizer, {.eos_token_ids = eos, .clock = &clock});
  return run_one(engine, {.prompt_token_ids = {97}, .sampling = sampling});
}

TEST_CASE("a stop text across tokens of the real tokenizer") {
  const RequestOutput cut = run_scripted({259, 261}, {.stop = {"ab|"}});
  REQUIRE(cut.outputs.size() == 1);
  CHECK(cut.outputs[0].text == "x");
  CHECK(cut.outputs[0].finish_reason == FinishReason::kStop);
  CHECK(cut.outputs[0].stop_reason == StopReason("ab|"));
  CHECK(cut.num_completion_tokens == 2);
  CHECK(run_scripted({259, 261}, {.stop = {"ab|"}, .include_stop_str_in_output = true}).outputs[0].text == "xab|");
  const RequestOutput released = run_scripted({259}, {.max_tokens = 1, .stop = {"ab|"}});
  CHECK(released.outputs[0].text == "xa");
  CHECK(released.outputs[0].finish_reason == FinishReason::kLength);
}

TEST_CASE("several end tokens, ignored or not, and one asked for") {
  const RequestOutput ended = run_scripted({271}, {}, {269, 271});
  CHECK(ended.outputs[0].token_ids == Ids{271});
  CHECK(ended.outputs[0].text.empty());
  CHECK(ended.outputs[0].finish_reason == FinishReason::kStop);
  CHECK(ended.outputs[0].stop_reason == StopReason());
  const RequestOutput ignored = run_scripted({271, 271, 271}, {.max_tokens = 3, .ignore_eos = true}, {269, 271});
  CHECK(ignored.outputs[0].finish_reason == FinishReason::kLength);
  CHECK(ignored.outputs[0].text.empty());  // special tokens are skipped
  const RequestOutput shown =
      run_scripted({271}, {.max_tokens = 1, .ignore_eos = true, .skip_special_tokens = false}, {269, 271});
  CHECK(shown.outputs[0].text == "<|end|>");
  const RequestOutput asked = run_scripted({271}, {.stop_token_ids = {271}, .ignore_eos = true}, {269, 271});
  CHECK(asked.outputs[0].finish_reason == FinishReason::kStop);
  CHECK(asked.outputs[0].stop_reason == StopReason(271));
}

TEST_CASE("an unfinished character at the end becomes U+FFFD") {
  CHECK(run_scripted({72, 105, 240, 159}, {.max_tokens = 4}).outputs[0].text == "Hi\xef\xbf\xbd");
}

TEST_CASE("times are taken when a row is pulled, scheduled, answered and finished") {
  ManualClock clock;
  ScriptedRunner runner(script({1, 2}), clock);
  Engine engine(runner, nullptr, {.detokenize = false, .clock = &clock});
  clock.advance(10);
  engine.submit({.prompt_token_ids = Ids(20, 5), .sampling = {.max_tokens = 2}, .pulled_s = 8});
  clock.advance(5);
  while (engine.step()) {
  }
  const RequestOutput output = engine.take_finished().at(0);
  CHECK(output.timing.pulled_s == 8);
  CHECK(output.timing.first_scheduled_s == 15);
  CHECK(output.timing.first_token_s == 17);  // the prompt takes two steps
  CHECK(output.timing.finished_s == 18);
  CHECK(output.num_prompt_tokens == 20);
  CHECK(output.outputs[0].cumulative_logprob == -0.5);
  const EngineStats& stats = engine.stats();
  CHECK(stats.num_steps == 3);
  CHECK(stats.num_prompt_tokens == 20);
  CHECK(stats.num_generation_tokens == 2);
  CHECK(stats.num_finished == 1);
  CHECK(stats.sum_running == 3);
  CHECK(stats.kv_blocks_used_peak == 2);
  CHECK(stats.kv_blocks_used_now == 0);
  CHECK(stats.kv_blocks_total == 8);
  CHECK(stats.step_seconds == 3);
  CHECK(stats.times.device_s == 3);
  CHECK(stats.times.host_stall_s == 5);  // from the submission to the first step
  const Distributions& d = engine.distributions();
  CHECK(d.queue_s.sum() == 7);
  CHECK(d.prefill_s.sum() == 2);
  CHECK(d.decode_s.sum() == 1);
  CHECK(d.inference_s.sum() == 3);
  CHECK(d.ttft_s.sum() == 9);
  CHECK(d.itl_s.sum() == 1);
  CHECK(d.tpot_s.sum() == 1);
  CHECK(d.e2e_s.sum() == 10);
  CHECK(d.prompt_tokens.sum() == 20);
  CHECK(d.generation_tokens.sum() == 2);
  CHECK(d.step_tokens.count() == 3);
  CHECK(d.step_tokens.sum() == 21);
}

TEST_CASE("a row that fails has times of its own and stands in no distribution") {
  ManualClock clock;
  ScriptedRunner runner({}, clock);
  Engine engine(runner, nullptr, {.detokenize = false, .clock = &clock});
  clock.advance(3);
  engine.submit({.prompt_token_ids = {}, .pulled_s = 1});
  const RequestOutput output = engine.take_finished().at(0);
  REQUIRE(output.error);
  CHECK(output.timing.pulled_s == 1);
  CHECK(output.timing.finished_s == 3);
  CHECK(engine.distributions().e2e_s.count() == 0);
  CHECK(engine.stats().times.starved_s == 0);
}

TEST_CASE("every step is told to who asks for it, with what it held") {
  ManualClock clock;
  ScriptedRunner runner(script({1, 2}), clock);
  std::vector<StepRecord> steps;
  Engine engine(runner, nullptr,
                {.detokenize = false, .clock = &clock, .on_step = [&](const StepRecord& s) { steps.push_back(s); }});
  engine.submit({.prompt_token_ids = Ids(20, 5), .sampling = {.max_tokens = 2}});
  clock.advance(5);
  while (engine.step()) {
  }
  REQUIRE(steps.size() == 3);
  CHECK(steps[0].host_wait_s == 5);
  CHECK(steps[0].num_tokens == 16);
  CHECK(steps[0].num_prompt_tokens == 16);
  CHECK(steps[0].num_logits_rows == 0);
  CHECK(steps[1].num_prompt_tokens == 4);
  CHECK(steps[1].num_logits_rows == 1);
  CHECK(steps[1].host_wait_s == 0);
  CHECK(steps[2].num_tokens == 1);
  CHECK(steps[2].num_prompt_tokens == 0);
  CHECK(steps[2].num_used_blocks == 2);
  CHECK(steps[2].step_id == steps[0].step_id + 2);
  CHECK(steps[2].launched_s == 7);
  CHECK(steps[2].device_s == 1);
}

TEST_CASE("an engine without work says so") {
  ManualClock clock;
  ScriptedRunner runner({}, clock);
  Engine engine(runner, nullptr, {.detokenize = false, .clock = &clock});
  CHECK(engine.idle());
  CHECK_FALSE(engine.step());
  CHECK(engine.stats().num_steps == 0);
}

TEST_CASE("a request that can never run comes back with the field and the reason, and the next one runs") {
  struct Case {
    Request request;
    std::string field, message;
  };
  const std::vector<Case> cases = {
      {{.request_id = 1, .prompt_token_ids = {}},
       "prompt",
       "prompt has no tokens; generation needs at least one, and this tokenizer adds none"},
      {{.request_id = 2, .prompt_token_ids = {5, 272}},
       "prompt_token_ids",
       "prompt_token_ids[1] is 272; it must be between 0 and 271, the last id of the vocabulary"},
      {{.request_id = 3, .prompt_token_ids = {-1}},
       "prompt_token_ids",
       "prompt_token_ids[0] is -1; it must be between 0 and 271, the last id of the vocabulary"},
      {{.request_id = 4, .prompt_token_ids = {5}, .sampling = {.stop = {"x"}}},
       "stop",
       "stop strings need text, and this job makes none; use stop_token_ids or turn detokenizing on"},
      {{.request_id = 5, .prompt_token_ids = Ids(64, 5)},
       "prompt",
       "prompt has 64 tokens; at most 63 fit in --max-model-len 64 with one token to generate; shorten the prompt or "
       "raise "
       "--max-model-len"},
  };
  ManualClock clock;
  ScriptedRunner runner(script({1}), clock);
  Engine engine(runner, nullptr, {.detokenize = false, .clock = &clock});
  for (const Case& c : cases) engine.submit(c.request);
  CHECK(engine.idle());
  std::vector<RequestOutput> outputs = engine.take_finished();
  REQUIRE(outputs.size() == cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    CHECK(outputs[i].request_id == cases[i].request.request_id);
    REQUIRE(outputs[i].error);
    CHECK(outputs[i].error->code == "invalid_request");
    CHECK(outputs[i].error->field == cases[i].field);
    CHECK(outputs[i].error->message == cases[i].message);
    CHECK(outputs[i].outputs.empty());
  }
  CHECK(run_one(engine, {.prompt_token_ids = Ids(63, 5)}).outputs.at(0).finish_reason == FinishReason::kLength);
  CHECK(engine.stats().num_failed == 5);
}

TEST_CASE("logits that are not numbers cost the row and nothing else") {
  ManualClock clock;
  ScriptedRunner runner({{1, -1, SampleStatus::kFine}, {0, 0, SampleStatus::kNonFinite}, {2, -1, SampleStatus::kFine}},
                        clock);
  Engine engine(runner, nullptr, {.detokenize = false, .clock = &clock});
  const RequestOutput failed = run_one(engine, {.prompt_token_ids = {5}, .sampling = {.max_tokens = 9}});
  REQUIRE(failed.error);
  CHECK(failed.error->code == "internal");
  CHECK(failed.error->message ==
        "the model's logits for generated token 2 hold NaN or infinity; check the weights, or try --dtype float");
  CHECK(failed.outputs.empty());
  CHECK(failed.num_completion_tokens == 0);
  CHECK(engine.stats().kv_blocks_used_now == 0);
  CHECK(run_one(engine, {.prompt_token_ids = {5}, .sampling = {.max_tokens = 1}}).outputs.at(0).token_ids == Ids{2});
}

TEST_CASE("64 slots are kept full while rows wait") {
  RunnerLimits limits = small_limits();
  limits.max_num_seqs = limits.max_logits_rows = 64;
  limits.max_num_batched_tokens = 256;
  limits.num_blocks = {512};
  const test::FakeModel model{limits.kv_groups, limits.vocab_size, 1, 0};
  test::FakeRunner runner(model, limits);
  Engine engine(runner, nullptr, {.detokenize = false});
  for (int i = 0; i < 400; ++i) {
    engine.submit({.request_id = i,
                   .prompt_token_ids = Ids(static_cast<size_t>(1 + i % 30), i % 272),
                   .sampling = {.max_tokens = 1 + i % 24}});
  }
  while (engine.num_unfinished() > 64) engine.step();
  CHECK(static_cast<double>(engine.stats().sum_running) / static_cast<double>(engine.stats().num_steps) > 48);
}

/// Every token and score as test::FakeModel gives them.
struct FakeEngine {
  explicit FakeEngine(const RunnerLimits& limits)
      : model{limits.kv_groups, limits.vocab_size, 3, 0},
        runner(model, limits),
        engine(runner, TokenDecoderFactory(), {.eos_token_ids = {7}, .detokenize = false}) {}
  test::FakeModel model;
  test::FakeRunner runner;
  Engine engine;
};

RunnerLimits scoring_limits() {
  RunnerLimits limits = small_limits();
  limits.max_scored_rows = 5;
  limits.max_logprobs = 2;
  return limits;
}

TEST_CASE("a prompt that is only scored: one output without tokens, a score for every token but the first") {
  FakeEngine fake(scoring_limits());
  Ids prompt(64);  // as long as max_model_len: nothing follows it
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * 3);
  const RequestOutput output =
      run_one(fake.engine, {.prompt_token_ids = prompt, .sampling = {.max_tokens = 0, .prompt_logprobs = 2}});
  REQUIRE_FALSE(output.error);
  REQUIRE(output.outputs.size() == 1);
  CHECK(output.outputs[0].token_ids.empty());
  CHECK(output.outputs[0].finish_reason == FinishReason::kLength);
  CHECK(output.num_completion_tokens == 0);
  REQUIRE(output.prompt_logprobs.size() == 63);
  for (size_t i = 1; i < prompt.size(); ++i) {
    CHECK(output.prompt_logprobs[i - 1] ==
          position_logprobs(fake.model.score(std::span(prompt).first(i), prompt[i], 2)));
  }
  CHECK(fake.runner.num_sampled_tokens() == 0);
  CHECK(fake.runner.num_steps() == 13);  // 63 positions, 5 scores in a step
}

TEST_CASE("scoring a prompt of one token, or generating nothing without scores, ends at once") {
  FakeEngine fake(scoring_limits());
  for (const SamplingParams& sampling : {SamplingParams{.max_tokens = 0, .prompt_logprobs = 0}, {.max_tokens = 0}}) {
    const RequestOutput output = run_one(fake.engine, {.prompt_token_ids = {5}, .sampling = sampling});
    CHECK_FALSE(output.error);
    CHECK(output.outputs.size() == 1);
    CHECK(output.prompt_logprobs.empty());
  }
  CHECK(fake.runner.num_steps() == 0);
  CHECK(fake.engine.idle());
}

TEST_CASE("more masked ids than a step has room for are the row's error") {
  FakeEngine fake(scoring_limits());
  const auto refusal = [&](SamplingParams sampling) {
    const RequestOutput output = run_one(fake.engine, {.prompt_token_ids = {5}, .sampling = std::move(sampling)});
    REQUIRE(output.error);
    CHECK(output.error->code == "invalid_request");
    return output.error->field + ": " + output.error->message;
  };
  CHECK(refusal({.min_tokens = 1, .stop_token_ids = Ids(256, 1)})
            .starts_with("stop_token_ids: min_tokens and bad_words mask up to 257"));
  CHECK_FALSE(run_one(fake.engine, {.prompt_token_ids = {5}, .sampling = {.max_tokens = 1, .logprobs = 2}}).error);
}

TEST_CASE("a token that nothing is allowed for is the row's error") {
  ManualClock clock;
  ScriptedRunner runner({{0, 0, SampleStatus::kNothingAllowed}}, clock);
  Engine engine(runner, TokenDecoderFactory(), {.detokenize = false, .clock = &clock});
  const RequestOutput output = run_one(engine, {.prompt_token_ids = {5}});
  REQUIRE(output.error);
  CHECK(output.error->code == "invalid_request");
  CHECK(output.error->message.starts_with("no token is allowed as generated token 1: allowed_token_ids, logit_bias"));
}

}  // namespace
}  // namespace tokenmill
