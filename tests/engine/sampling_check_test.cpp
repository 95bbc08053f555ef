#include <doctest/doctest.h>

#include <limits>

#include "engine/sampling.h"

namespace tokenmill {
namespace {

const double kNaN = std::numeric_limits<double>::quiet_NaN();
const double kInfinity = std::numeric_limits<double>::infinity();

std::string message(const SamplingParams& params, int64_t max_logprobs = kDefaultMaxLogprobs) {
  const std::optional<FieldError> error = check(params, 100, max_logprobs);
  return error ? error->field + ": " + error->message : "";
}

TEST_CASE("values at the edges of their ranges are accepted") {
  for (const double temperature : {0.0, 1e-40, 1.0, 2.0}) CHECK(message({.temperature = temperature}) == "");
  for (const double top_p : {1e-300, 0.5, 1.0}) CHECK(message({.top_p = top_p}) == "");
  for (const int64_t top_k : {int64_t{-1}, int64_t{0}, int64_t{1}, std::numeric_limits<int64_t>::max()}) {
    CHECK(message({.top_k = top_k}) == "");
  }
  for (const double min_p : {0.0, 1.0}) CHECK(message({.min_p = min_p}) == "");
  for (const int64_t n : {1, 2, 16384}) CHECK(message({.n = n}) == "");
  for (const double penalty : {-2.0, 0.0, 2.0})
    CHECK(message({.presence_penalty = penalty, .frequency_penalty = penalty}) == "");
  for (const double penalty : {1e-300, 1.0, 100.0}) CHECK(message({.repetition_penalty = penalty}) == "");
  CHECK(message({.max_tokens = 1}) == "");
  CHECK(message({.max_tokens = 0, .prompt_logprobs = 0}) == "");
  CHECK(message({.max_tokens = 5, .min_tokens = 5}) == "");
  CHECK(message({.min_tokens = 5}) == "");
  CHECK(message({.stop = {"a", "bc"}, .stop_token_ids = {0, 99}}) == "");
  CHECK(message({.logit_bias = {{0, -1e30f}, {99, 5.0f}}, .allowed_token_ids = {0, 99}}) == "");
  CHECK(message({.logprobs = 0, .prompt_logprobs = 20}) == "");
  CHECK(message({.logprobs = -1, .prompt_logprobs = -1}, -1) == "");
  CHECK(message({.logprobs = -1}, 100) == "");
  CHECK(message({.logprobs = 1000}, -1) == "");
  CHECK(message({.logprobs = 2, .logprob_token_ids = {0, 99}}) == "");
  CHECK(message({.logprob_token_ids = std::vector<int32_t>(128, 1)}) == "");
  CHECK(message({.repetition_detection = {.max_pattern_size = 3, .min_pattern_size = 3, .min_count = 2}}) == "");
  CHECK(message({.bad_words = std::vector<std::vector<int32_t>>(128, {1})}) == "");
  CHECK(message({.trace_decode_token_ids = {0, 99}}) == "");
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
  for (const double penalty : {-2.1, 2.1, kNaN}) {
    CHECK(message({.presence_penalty = penalty}).starts_with("presence_penalty: presence_penalty is "));
    CHECK(message({.frequency_penalty = penalty}).ends_with("; it must be between -2 and 2"));
  }
  for (const double penalty : {0.0, -1.0, kInfinity, kNaN})
    CHECK(message({.repetition_penalty = penalty}).ends_with("; it must be above 0 and finite"));
}

TEST_CASE("counts are held against each other") {
  CHECK(message({.n = 0}) == "n: n is 0; it must be between 1 and 16384");
  CHECK(message({.n = 16385}) == "n: n is 16385; it must be between 1 and 16384");
  CHECK(message({.n = 2, .temperature = 0}) ==
        "n: n is 2; it must be 1 when temperature is 0: all samples would be equal");
  CHECK(message({.max_tokens = 0}) ==
        "max_tokens: max_tokens is 0; it must be at least 1, or 0 with prompt_logprobs, prompt_logprob_token_ids or "
        "--hidden-states to compute the prompt only");
  CHECK(message({.max_tokens = 0, .hidden_states = HiddenStates::kMean}) == "");
  CHECK(message({.max_tokens = -1}) == "max_tokens: max_tokens is -1; it must be at least 1");
  CHECK(message({.n = 2, .max_tokens = 0, .prompt_logprobs = 1}) == "n: n is 2; it must be 1 when max_tokens is 0");
  CHECK(message({.min_tokens = -1}) == "min_tokens: min_tokens is -1; it must be at least 0");
  CHECK(message({.max_tokens = 4, .min_tokens = 5}) ==
        "min_tokens: min_tokens is 5; it must be at most max_tokens, which is 4");
}

TEST_CASE("what ends a sequence early") {
  CHECK(message({.stop = {"a", ""}}) == "stop: stop[1] is an empty string; give text of at least one character");
  CHECK(message({.stop = {"a"}, .detokenize = false}) ==
        "stop: stop looks at text and detokenize is false, which makes none; use stop_token_ids");
  const auto rules = [](int64_t max, int64_t min, int64_t count) {
    return message({.repetition_detection = {.max_pattern_size = max, .min_pattern_size = min, .min_count = count}});
  };
  CHECK(rules(-1, 0, 0) == "repetition_detection: repetition_detection.max_pattern_size is -1; it must be at least 0");
  CHECK(rules(2, -3, 2) == "repetition_detection: repetition_detection.min_pattern_size is -3; it must be at least 0");
  CHECK(rules(2, 3, 2) ==
        "repetition_detection: repetition_detection.min_pattern_size is 3; it must be at most "
        "max_pattern_size, which is 2");
  CHECK(rules(-1, -5, 0) == "repetition_detection: repetition_detection.max_pattern_size is -1; it must be at least 0");
  CHECK(rules(0, 3, 2).ends_with("at most max_pattern_size, which is 0 (0 where it is not given)"));
  CHECK(rules(5, 0, 0) ==
        "repetition_detection: repetition_detection.max_pattern_size is 5; it needs repetition_detection.min_count of at "
        "least 2, which is 0 or not given");
  CHECK(rules(2, 1, 1) == "repetition_detection: repetition_detection.min_count is 1; it must be at least 2");
  CHECK(rules(0, 0, 0) == "");
}

TEST_CASE("token ids outside the vocabulary are named by their place") {
  const std::string range = "; it must be between 0 and 99, the last id of the vocabulary";
  CHECK(message({.stop_token_ids = {5, 100}}) == "stop_token_ids: stop_token_ids[1] is 100" + range);
  CHECK(message({.stop_token_ids = {-1}}) == "stop_token_ids: stop_token_ids[0] is -1" + range);
  CHECK(message({.allowed_token_ids = {100}}) == "allowed_token_ids: allowed_token_ids[0] is 100" + range);
  CHECK(message({.logprob_token_ids = {100}}) == "logprob_token_ids: logprob_token_ids[0] is 100" + range);
  CHECK(message({.trace_decode_token_ids = {1, -1}}) ==
        "trace_decode_token_ids: trace_decode_token_ids[1] is -1" + range);
  for (const int32_t id : {-1, 100, 999999})
    CHECK(message({.logit_bias = {{id, 1.0f}}}) == "logit_bias: logit_bias names token " + std::to_string(id) +
                                                       "; ids go from 0 to 99, the last id of the vocabulary");
  CHECK(message({.bad_words = std::vector<std::vector<int32_t>>(129, {1})}) ==
        "bad_words: bad_words give 129 token sequences; at most 128 are allowed");
  CHECK(message({.bad_words = {{}}}) == "bad_words: a word of bad_words has no token in this vocabulary");
  CHECK(message({.bad_words = {{1, 100}}}) == "bad_words: bad_words[1] is 100" + range);
}

TEST_CASE("how many logprobs may be asked for") {
  for (const char* field : {"logprobs", "prompt_logprobs"}) {
    const auto asked = [&](int64_t count, int64_t max_logprobs) {
      SamplingParams params;
      (std::string(field) == "logprobs" ? params.logprobs : params.prompt_logprobs) = count;
      return message(params, max_logprobs);
    };
    const std::string start = std::string(field) + ": " + field;
    CHECK(asked(21, 20) == start + " is 21; at most 20 are allowed: raise --max-logprobs (-1: no limit)");
    CHECK(asked(-1, 99) ==
          start + " is -1, the whole vocabulary of 100; at most 99 are allowed: raise --max-logprobs (-1: no limit)");
    CHECK(asked(-2, -1) == start + " is -2; it must be at least 0, or -1 for the whole vocabulary");
  }
  CHECK(message({.logprobs = 3, .logprob_token_ids = {1, 2}}) ==
        "logprobs: logprobs is 3; it must be 2, the number of logprob_token_ids, or left out");
  CHECK(message({.logprob_token_ids = std::vector<int32_t>(129, 1)}) ==
        "logprob_token_ids: logprob_token_ids has 129 ids; at most 128 are allowed");
}

TEST_CASE("ids listed for a prompt's positions are of the vocabulary or -1, and no more than logprobs may be") {
  CHECK(message({.prompt_logprob_ids = {.width = 2, .ids = {-1, 0, 99, -1}, .start = 3}}) == "");
  CHECK(message({.max_tokens = 0, .prompt_logprob_ids = {.width = 1, .ids = {5}}}) == "");
  for (const int32_t id : {-2, 100})
    CHECK(message({.prompt_logprob_ids = {.width = 2, .ids = {1, 2, 3, id}}}) ==
          "prompt_logprob_token_ids: prompt_logprob_token_ids[1][1] is " + std::to_string(id) +
              "; it must be -1 (none), or between 0 and 99, the last id of the vocabulary");
  const std::vector<int32_t> many(21, 1);
  CHECK(message({.prompt_logprob_ids = {.width = 21, .ids = many}}) ==
        "prompt_logprob_token_ids: prompt_logprob_token_ids has rows of 21 ids; at most 20 are allowed: raise "
        "--max-logprobs");
  CHECK(message({.prompt_logprob_ids = {.width = 1, .ids = {1}, .start = -1}}) ==
        "prompt_logprob_start: prompt_logprob_start is -1; it must be at least 0");
}

TEST_CASE("a replayed trace excludes what would change its tokens") {
  const std::vector<int32_t> trace = {1};
  const auto refused = [](const char* other) {
    return "trace_decode_token_ids: trace_decode_token_ids cannot go with " + std::string(other) + "; drop one";
  };
  CHECK(message({.n = 2, .trace_decode_token_ids = trace}) == refused("n above 1"));
  CHECK(message({.bad_words = {{3}}, .trace_decode_token_ids = trace}) == refused("bad_words"));
  CHECK(message({.prompt_logprobs = 1, .trace_decode_token_ids = trace}) == refused("prompt_logprobs"));
  CHECK(message({.prompt_logprob_ids = {.width = 1, .ids = {5}}, .trace_decode_token_ids = trace}) ==
        refused("prompt_logprob_token_ids"));
  CHECK(message({.thinking_budget = ThinkingBudget{3, {1}, {2}, -1}, .trace_decode_token_ids = trace}) ==
        refused("thinking_token_budget"));
  CHECK(message({.thinking_budget = ThinkingBudget{-2, {1}, {2}, -1}}) ==
        "thinking_token_budget: thinking_token_budget is -2; it must be at least 0, or -1 for no limit");
}

}  // namespace
}  // namespace tokenmill
