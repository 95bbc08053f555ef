#include <fmt/core.h>

#include <cmath>
#include <span>

#include "engine/sampling.h"

// The table of rules that a row's sampling parameters are held to, one function per group of fields. Each gives the
// first violation it finds.
namespace tokenmill {
namespace {

using Violation = std::optional<FieldError>;

constexpr size_t kMaxBadWords = 128;

bool between(double value, double low, double high) { return value >= low && value <= high; }  // false for NaN

template <typename T>
FieldError field_error(const char* field, const T& found, std::string_view allowed) {
  return {field, fmt::format("{} is {}; it must be {}", field, found, allowed)};
}

Violation check_distribution(const SamplingParams& p) {
  if (!between(p.temperature, 0, 2)) return field_error("temperature", p.temperature, "between 0 and 2");
  if (!(p.top_p > 0 && p.top_p <= 1)) return field_error("top_p", p.top_p, "above 0 and at most 1");
  if (p.top_k < -1) return field_error("top_k", p.top_k, "at least 1, or 0 or -1 for no limit");
  if (!between(p.min_p, 0, 1)) return field_error("min_p", p.min_p, "between 0 and 1");
  if (!between(p.presence_penalty, -2, 2))
    return field_error("presence_penalty", p.presence_penalty, "between -2 and 2");
  if (!between(p.frequency_penalty, -2, 2))
    return field_error("frequency_penalty", p.frequency_penalty, "between -2 and 2");
  if (!(p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty)))
    return field_error("repetition_penalty", p.repetition_penalty, "above 0 and finite");
  return std::nullopt;
}

Violation check_counts(const SamplingParams& p) {
  if (p.n < 1 || p.n > kMaxSamples) return field_error("n", p.n, fmt::format("between 1 and {}", kMaxSamples));
  if (p.n > 1 && is_greedy(p))
    return FieldError{"n", fmt::format("n is {}; it must be 1 when temperature is 0: all samples would be equal", p.n)};
  if (p.max_tokens && *p.max_tokens < 0) return field_error("max_tokens", *p.max_tokens, "at least 1");
  if (p.max_tokens == 0 && !scores_prompt(p) && p.hidden_states == HiddenStates::kNone)
    return FieldError{
        "max_tokens",
        "max_tokens is 0; it must be at least 1, or 0 with prompt_logprobs, prompt_logprob_token_ids or --hidden-states "
        "to compute the prompt only"};
  if (p.max_tokens == 0 && p.n > 1) return field_error("n", p.n, "1 when max_tokens is 0");
  if (p.min_tokens < 0) return field_error("min_tokens", p.min_tokens, "at least 0");
  if (p.max_tokens && p.min_tokens > *p.max_tokens)
    return field_error("min_tokens", p.min_tokens, fmt::format("at most max_tokens, which is {}", *p.max_tokens));
  return std::nullopt;
}

Violation check_stop(const SamplingParams& p) {
  for (size_t i = 0; i < p.stop.size(); ++i)
    if (p.stop[i].empty())
      return FieldError{"stop", fmt::format("stop[{}] is an empty string; give text of at least one character", i)};
  if (!p.stop.empty() && !p.detokenize)
    return FieldError{"stop", "stop looks at text and detokenize is false, which makes none; use stop_token_ids"};
  const RepetitionDetection& r = p.repetition_detection;
  const char* field = "repetition_detection";
  if (r.min_pattern_size < 0 || r.max_pattern_size < 0)
    return FieldError{field, fmt::format("{}.{} is {}; it must be at least 0", field,
                                         r.max_pattern_size < 0 ? "max_pattern_size" : "min_pattern_size",
                                         r.max_pattern_size < 0 ? r.max_pattern_size : r.min_pattern_size)};
  if (r.min_pattern_size > r.max_pattern_size)
    return FieldError{field, fmt::format("{}.min_pattern_size is {}; it must be at most max_pattern_size, which is {}{}",
                                         field, r.min_pattern_size, r.max_pattern_size,
                                         r.max_pattern_size == 0 ? " (0 where it is not given)" : "")};
  if (r.max_pattern_size > 0 && r.min_count == 0)
    return FieldError{field, fmt::format("{0}.max_pattern_size is {1}; it needs {0}.min_count of at least 2, which is 0 "
                                         "or not given",
                                         field, r.max_pattern_size)};
  if (r.max_pattern_size > 0 && r.min_count < 2)
    return FieldError{field, fmt::format("{}.min_count is {}; it must be at least 2", field, r.min_count)};
  return std::nullopt;
}

Violation check_ids(const char* field, std::span<const int32_t> ids, int64_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocab_size)
      return FieldError{field, fmt::format("{}[{}] is {}; it must be between 0 and {}, the last id of the vocabulary",
                                           field, i, ids[i], vocab_size - 1)};
  return std::nullopt;
}

Violation check_tokens(const SamplingParams& p, int64_t vocab_size) {
  if (auto wrong = check_ids("stop_token_ids", p.stop_token_ids, vocab_size)) return wrong;
  if (auto wrong = check_ids("allowed_token_ids", p.allowed_token_ids.get(), vocab_size)) return wrong;
  if (auto wrong = check_ids("logprob_token_ids", p.logprob_token_ids, vocab_size)) return wrong;
  if (auto wrong = check_ids("trace_decode_token_ids", p.trace_decode_token_ids, vocab_size)) return wrong;
  for (const auto& [id, bias] : p.logit_bias) {
    if (id < 0 || id >= vocab_size)
      return FieldError{"logit_bias",
                        fmt::format("logit_bias names token {}; ids go from 0 to {}, the last id of the vocabulary", id,
                                    vocab_size - 1)};
    if (std::isnan(bias)) return FieldError{"logit_bias", fmt::format("logit_bias of token {} is not a number", id)};
  }
  if (p.bad_words.size() > kMaxBadWords)
    return FieldError{"bad_words", fmt::format("bad_words give {} token sequences; at most {} are allowed",
                                               p.bad_words.size(), kMaxBadWords)};
  for (const std::vector<int32_t>& word : p.bad_words) {
    if (word.empty()) return FieldError{"bad_words", "a word of bad_words has no token in this vocabulary"};
    if (auto wrong = check_ids("bad_words", word, vocab_size)) return wrong;
  }
  return std::nullopt;
}

Violation check_logprobs_count(const char* field, std::optional<int64_t> count, int64_t vocab_size,
                               int64_t max_logprobs) {
  if (!count) return std::nullopt;
  if (*count < -1) return field_error(field, *count, "at least 0, or -1 for the whole vocabulary");
  const int64_t wanted = *count == -1 ? vocab_size : *count;
  if (max_logprobs < 0 || wanted <= max_logprobs) return std::nullopt;
  return FieldError{
      field, fmt::format("{} is {}{}; at most {} are allowed: raise --max-logprobs (-1: no limit)", field, *count,
                         *count == -1 ? fmt::format(", the whole vocabulary of {}", wanted) : "", max_logprobs)};
}

Violation check_prompt_ids(const PromptLogprobIds& p, int64_t vocab_size, int64_t max_logprobs) {
  const char* field = "prompt_logprob_token_ids";
  if (p.start < 0) return field_error("prompt_logprob_start", p.start, "at least 0");
  const int64_t most = max_logprobs < 0 ? vocab_size : max_logprobs;
  if (p.width > most)
    return FieldError{field, fmt::format("{} has rows of {} ids; at most {} are allowed: raise --max-logprobs", field,
                                         p.width, most)};
  for (size_t i = 0; i < p.ids.size(); ++i)
    if (p.ids[i] < -1 || p.ids[i] >= vocab_size)
      return FieldError{field,
                        fmt::format("{}[{}][{}] is {}; it must be -1 (none), or between 0 and {}, the last id of "
                                    "the vocabulary",
                                    field, i / static_cast<size_t>(p.width), i % static_cast<size_t>(p.width), p.ids[i],
                                    vocab_size - 1)};
  return std::nullopt;
}

Violation check_logprobs(const SamplingParams& p, int64_t vocab_size, int64_t max_logprobs) {
  if (auto wrong = check_logprobs_count("prompt_logprobs", p.prompt_logprobs, vocab_size, max_logprobs)) return wrong;
  if (auto wrong = check_prompt_ids(p.prompt_logprob_ids, vocab_size, max_logprobs)) return wrong;
  const auto num_ids = static_cast<int64_t>(p.logprob_token_ids.size());
  if (num_ids == 0) return check_logprobs_count("logprobs", p.logprobs, vocab_size, max_logprobs);
  if (num_ids > kMaxLogprobTokenIds)
    return FieldError{"logprob_token_ids", fmt::format("logprob_token_ids has {} ids; at most {} are allowed", num_ids,
                                                       kMaxLogprobTokenIds)};
  if (p.logprobs && *p.logprobs != num_ids)
    return field_error("logprobs", *p.logprobs,
                       fmt::format("{}, the number of logprob_token_ids, or left out", num_ids));
  return std::nullopt;
}

Violation check_thinking_and_trace(const SamplingParams& p) {
  if (p.thinking_budget && p.thinking_budget->max_tokens < 0)
    return field_error("thinking_token_budget", p.thinking_budget->max_tokens, "at least 0, or -1 for no limit");
  if (p.trace_decode_token_ids.empty()) return std::nullopt;
  const char* other = p.n > 1                ? "n above 1"
                      : !p.bad_words.empty() ? "bad_words"
                      : p.prompt_logprobs    ? "prompt_logprobs"
                      : scores_prompt(p)     ? "prompt_logprob_token_ids"
                      : p.thinking_budget    ? "thinking_token_budget"
                                             : nullptr;
  if (other == nullptr) return std::nullopt;
  return FieldError{"trace_decode_token_ids", fmt::format("trace_decode_token_ids cannot go with {}; drop one", other)};
}

}  // namespace

std::optional<FieldError> check(const SamplingParams& params, int64_t vocab_size, int64_t max_logprobs) {
  if (auto wrong = check_distribution(params)) return wrong;
  if (auto wrong = check_counts(params)) return wrong;
  if (auto wrong = check_stop(params)) return wrong;
  if (auto wrong = check_tokens(params, vocab_size)) return wrong;
  if (auto wrong = check_logprobs(params, vocab_size, max_logprobs)) return wrong;
  return check_thinking_and_trace(params);
}

}  // namespace tokenmill
