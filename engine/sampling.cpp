#include "engine/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "engine/text/tokenizer.h"

namespace tokenmill {
namespace {

constexpr double kMinTemperature = 0.01;  // smallest temperature that is sampled with
constexpr float kMaxBias = 100;
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

// The finalizer of splitmix64 (Steele, Lea & Flood, OOPSLA 2014): a bijection of 64 bits.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

text::DecodeOptions decode_options(const SamplingParams& params) {
  return {.skip_special_tokens = params.skip_special_tokens,
          .spaces_between_special_tokens = params.spaces_between_special_tokens};
}

SamplingParams normalized(SamplingParams params) {
  if (is_greedy(params)) {
    params.temperature = 0;
    params.top_p = 1;
    params.top_k = 0;
    params.min_p = 0;
  } else if (params.temperature < kMinTemperature) {
    params.temperature = kMinTemperature;
  }
  if (params.top_k == -1) params.top_k = 0;
  const auto exceeds = [](const auto& entry) { return std::abs(entry.second) > kMaxBias; };
  if (std::any_of(params.logit_bias.begin(), params.logit_bias.end(), exceeds)) {
    std::vector<std::pair<int32_t, float>> clamped = params.logit_bias.get();
    for (auto& [id, bias] : clamped) bias = std::clamp(bias, -kMaxBias, kMaxBias);
    params.logit_bias = std::move(clamped);
  }
  if (!params.logprob_token_ids.empty()) params.logprobs = static_cast<int64_t>(params.logprob_token_ids.size());
  return params;
}

bool adjusts_logits(const SamplingParams& p) {
  return p.presence_penalty != 0 || p.frequency_penalty != 0 || p.repetition_penalty != 1 || !p.logit_bias.empty() ||
         !p.allowed_token_ids.empty() ||
         std::any_of(p.bad_words.begin(), p.bad_words.end(), [](const auto& word) { return word.size() == 1; });
}

uint64_t sample_key(uint64_t random_key, int index) {
  return mix(mix(random_key) + kGolden * static_cast<uint64_t>(index));
}

namespace {

/// Allowed ids start from 0 and all others are masked; bad words of one token are masked; the rest is added.
void set_bias(SlotSampling& slot, const SamplingParams& params) {
  std::map<int32_t, float> bias;
  slot.only_biased = !params.allowed_token_ids.empty();
  for (const int32_t id : params.allowed_token_ids) bias[id] = 0;
  for (const auto& [id, value] : params.logit_bias) {
    if (!slot.only_biased || bias.contains(id)) bias[id] = value;
  }
  for (const std::vector<int32_t>& word : params.bad_words) {
    if (word.size() == 1) bias[word.front()] = -std::numeric_limits<float>::infinity();
  }
  for (const auto& [id, value] : bias) slot.bias.push_back({id, value});
}

int32_t count_of(std::optional<int64_t> logprobs, int64_t vocab_size) {
  if (!logprobs) return -1;
  return static_cast<int32_t>(*logprobs == -1 ? vocab_size : std::min(*logprobs, vocab_size));
}

}  // namespace

SlotSampling slot_sampling(const SamplingParams& params, uint64_t key, int64_t vocab_size) {
  SlotSampling slot;
  slot.temperature = static_cast<float>(params.temperature);
  slot.top_p = std::max(static_cast<float>(params.top_p), std::numeric_limits<float>::min());  // stays above 0
  slot.min_p = static_cast<float>(params.min_p);
  slot.top_k = params.top_k <= 0 || params.top_k >= vocab_size ? 0 : static_cast<int32_t>(params.top_k);
  slot.key = key;
  slot.presence_penalty = static_cast<float>(params.presence_penalty);
  slot.frequency_penalty = static_cast<float>(params.frequency_penalty);
  slot.repetition_penalty = std::max(static_cast<float>(params.repetition_penalty), std::numeric_limits<float>::min());
  set_bias(slot, params);
  slot.logprob_token_ids = params.logprob_token_ids;
  slot.num_logprobs = count_of(params.logprobs, vocab_size);
  slot.num_prompt_logprobs = count_of(params.prompt_logprobs, vocab_size);
  return slot;
}

}  // namespace tokenmill
