#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/step_plan.h"

namespace tokenmill {

/// What one row asks of the sampler; names and meanings of vLLM's SamplingParams. app/rows fills it from a record over
/// the job's defaults.
struct SamplingParams {
  double temperature = 1.0;  ///< [0, 2]; below 1e-5: greedy, and top_p, top_k, min_p are neutral
  double top_p = 1.0;        ///< (0, 1]
  int64_t top_k = 0;         ///< 0 or -1: off
  double min_p = 0.0;        ///< [0, 1]
  std::optional<uint64_t> seed;
  std::optional<int64_t> max_tokens;  ///< >= 1; empty: what is left of max_model_len
  std::vector<std::string> stop;      ///< non-empty strings
  std::vector<int32_t> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  bool operator==(const SamplingParams&) const = default;
};

/// One thing wrong with a row: the field at fault and a sentence "temperature is -1; it must be between 0 and 2".
struct FieldError {
  std::string field;
  std::string message;
};

/// The first violation of the table of rules, or nothing. vocab_size bounds token ids.
std::optional<FieldError> check(const SamplingParams& params, int64_t vocab_size);

/// Applies greedy forcing and clamps (0 < t < 0.01 becomes 0.01). Call after check().
SamplingParams normalized(SamplingParams params);

/// Key of the random stream of sample `index` of a request. Two rounds of splitmix64's finalizer: for one index
/// distinct random keys give distinct results, for one random key distinct indices do. Part of what a job's results
/// depend on: never changed without changing the numerics' identity.
uint64_t sample_key(uint64_t random_key, int index);

/// What the device tables hold for a sequence. top_k of vocab_size or more becomes 0 (off). params: normalized.
SlotSampling slot_sampling(const SamplingParams& params, uint64_t key, int64_t vocab_size);

}  // namespace tokenmill
