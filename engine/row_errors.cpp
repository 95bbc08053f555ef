#include "engine/row_errors.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/memory_plan.h"

namespace tokenmill {
namespace {

int64_t num_entries(int64_t logprobs, int64_t vocab_size) { return 1 + (logprobs < 0 ? vocab_size : logprobs); }

std::optional<RequestError> check_prompt(const std::vector<int32_t>& prompt, int64_t vocab_size) {
  if (prompt.empty()) {
    return invalid_request(
        {"prompt", "prompt has no tokens; generation needs at least one, and this tokenizer adds none"});
  }
  const auto outside =
      std::find_if(prompt.begin(), prompt.end(), [&](int32_t id) { return id < 0 || id >= vocab_size; });
  if (outside == prompt.end()) return std::nullopt;
  return invalid_request(
      {"prompt_token_ids",
       fmt::format("prompt_token_ids[{}] is {}; it must be between 0 and {}, the last id of the vocabulary",
                   outside - prompt.begin(), *outside, vocab_size - 1)});
}

std::optional<RequestError> check_logprobs(const Request& request, int64_t vocab_size, int64_t allowed_bytes) {
  const PromptLogprobIds& lists = request.sampling.prompt_logprob_ids;
  const auto num_tokens = static_cast<int64_t>(request.prompt_token_ids.size());
  const int64_t num_rows = std::max<int64_t>(0, num_tokens - 1 - lists.start);
  if (lists.width > 0 && lists.num_rows() != num_rows) {
    return invalid_request(
        {"prompt_logprob_token_ids",
         fmt::format("prompt_logprob_token_ids has {} rows; the prompt has {} tokens, {} of them behind position {} "
                     "(prompt_logprob_start): give a row for each of these",
                     lists.num_rows(), num_tokens, num_rows, lists.start)});
  }
  const int64_t bytes = prompt_logprob_bytes(request, vocab_size);
  if (bytes <= allowed_bytes || !request.sampling.prompt_logprobs) return std::nullopt;
  return invalid_request(
      {"prompt_logprobs",
       fmt::format("prompt_logprobs asks for {} tokens at each of {} positions, {} of memory; a row may report {}: ask "
                   "for fewer tokens per position, or split the prompt",
                   num_entries(*request.sampling.prompt_logprobs, vocab_size), request.prompt_token_ids.size() - 1,
                   format_bytes(bytes), format_bytes(allowed_bytes))});
}

}  // namespace

RequestError invalid_request(FieldError error) {
  return {"invalid_request", std::move(error.field), std::move(error.message)};
}

RequestError non_finite_logits(const char* kind, int64_t number) {
  return {
      "internal", "",
      fmt::format("the model's logits for {} token {} hold NaN or infinity; check the weights, or try --dtype float",
                  kind, number)};
}

RequestError non_finite_hidden_state(int64_t index) {
  return {"internal", "",
          fmt::format("value {} of the prompt's hidden state is NaN or infinite; check the weights, or try --dtype float",
                      index)};
}

RequestError nothing_allowed(int64_t number) {
  return invalid_request(
      {"allowed_token_ids",
       fmt::format("no token is allowed as generated token {}: allowed_token_ids, logit_bias, bad_words and "
                   "min_tokens together mask the whole vocabulary; relax one of them",
                   number)});
}

RequestError too_many_logprobs(int64_t number, int64_t num_entries, int64_t allowed_bytes) {
  return invalid_request(
      {"logprobs",
       fmt::format("with generated token {} and {} tokens reported for each, a sample's logprobs exceed {}; "
                   "lower logprobs, max_tokens or n",
                   number, num_entries, format_bytes(allowed_bytes))});
}

int64_t prompt_logprob_bytes(const Request& request, int64_t vocab_size) {
  const auto listed = static_cast<int64_t>(request.sampling.prompt_logprob_ids.ids.size() * sizeof(float));
  if (!request.sampling.prompt_logprobs) return listed;
  const auto num_positions = static_cast<int64_t>(request.prompt_token_ids.size()) - 1;
  return listed + num_positions * logprob_bytes(num_entries(*request.sampling.prompt_logprobs, vocab_size));
}

std::optional<RequestError> check_request(const Request& request, const SampleConstraints& constraints,
                                          const RunnerLimits& limits, const EngineOptions& options) {
  if (auto error = check_prompt(request.prompt_token_ids, limits.vocab_size)) return error;
  if (!options.detokenize && !request.sampling.stop.empty()) {
    return invalid_request(
        {"stop", "stop strings need text, and this job makes none; use stop_token_ids or turn detokenizing on"});
  }
  if (constraints.max_masked_token_ids() > kMaxMaskedTokenIds) {
    return invalid_request(
        {"stop_token_ids", fmt::format("min_tokens and bad_words mask up to {} token ids at one position; at "
                                       "most {} can be; give fewer stop_token_ids or bad_words",
                                       constraints.max_masked_token_ids(), kMaxMaskedTokenIds)});
  }
  return check_logprobs(request, limits.vocab_size, options.max_row_logprob_bytes);
}

}  // namespace tokenmill
