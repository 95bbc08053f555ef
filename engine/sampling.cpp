#include "engine/sampling.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

namespace tokenmill {
namespace {

constexpr double kGreedyBelow = 1e-5;     // smaller temperatures are greedy
constexpr double kMinTemperature = 0.01;  // smallest temperature that is sampled with
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

bool between(double value, double low, double high) { return value >= low && value <= high; }  // false for NaN

FieldError field_error(const char* field, const std::string& found, const char* allowed) {
  return {field, fmt::format("{} is {}; it must be {}", field, found, allowed)};
}

// The finalizer of splitmix64 (Steele, Lea & Flood, OOPSLA 2014): a bijection of 64 bits.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

std::optional<FieldError> check(const SamplingParams& params, int64_t vocab_size) {
  if (!between(params.temperature, 0, 2)) {
    return field_error("temperature", fmt::format("{}", params.temperature), "between 0 and 2");
  }
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return field_error("top_p", fmt::format("{}", params.top_p), "above 0 and at most 1");
  }
  if (params.top_k < -1) {
    return field_error("top_k", fmt::format("{}", params.top_k), "at least 1, or 0 or -1 for no limit");
  }
  if (!between(params.min_p, 0, 1)) {
    return field_error("min_p", fmt::format("{}", params.min_p), "between 0 and 1");
  }
  if (params.max_tokens && *params.max_tokens < 1) {
    return field_error("max_tokens", fmt::format("{}", *params.max_tokens), "at least 1");
  }
  for (size_t i = 0; i < params.stop.size(); ++i) {
    if (params.stop[i].empty()) {
      return FieldError{"stop", fmt::format("stop[{}] is an empty string; give text of at least one character", i)};
    }
  }
  for (size_t i = 0; i < params.stop_token_ids.size(); ++i) {
    const int32_t id = params.stop_token_ids[i];
    if (id < 0 || id >= vocab_size) {
      return FieldError{
          "stop_token_ids",
          fmt::format("stop_token_ids[{}] is {}; it must be between 0 and {}, the last id of the vocabulary", i, id,
                      vocab_size - 1)};
    }
  }
  return std::nullopt;
}

SamplingParams normalized(SamplingParams params) {
  if (params.temperature < kGreedyBelow) {
    params.temperature = 0;
    params.top_p = 1;
    params.top_k = 0;
    params.min_p = 0;
  } else if (params.temperature < kMinTemperature) {
    params.temperature = kMinTemperature;
  }
  if (params.top_k == -1) params.top_k = 0;
  return params;
}

uint64_t sample_key(uint64_t random_key, int index) {
  return mix(mix(random_key) + kGolden * static_cast<uint64_t>(index));
}

SlotSampling slot_sampling(const SamplingParams& params, uint64_t key, int64_t vocab_size) {
  SlotSampling slot;
  slot.temperature = static_cast<float>(params.temperature);
  slot.top_p = std::max(static_cast<float>(params.top_p), std::numeric_limits<float>::min());  // stays above 0
  slot.min_p = static_cast<float>(params.min_p);
  slot.top_k = params.top_k <= 0 || params.top_k >= vocab_size ? 0 : static_cast<int32_t>(params.top_k);
  slot.key = key;
  return slot;
}

}  // namespace tokenmill
