#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/hidden_states.h"
#include "engine/shared_list.h"
#include "engine/slot_sampling.h"

namespace tokenmill {
namespace text {
struct DecodeOptions;  // text/tokenizer.h
}

/// Ends a sequence that repeats itself: its last tokens are at least min_count copies of one pattern of
/// min_pattern_size to max_pattern_size tokens. Off when max_pattern_size is 0.
struct RepetitionDetection {
  int64_t max_pattern_size = 0, min_pattern_size = 0, min_count = 0;
  bool operator==(const RepetitionDetection&) const = default;
};

/// A limit on the tokens that a model thinks with, between the markers that its template knows. When it is used up the
/// end marker is generated.
struct ThinkingBudget {
  int64_t max_tokens = 0;                               ///< >= 0
  std::vector<int32_t> start_token_ids, end_token_ids;  ///< the markers; not empty
  int64_t num_prompt_tokens = -1;  ///< thinking tokens at the prompt's end; -1: the prompt leaves no thinking open
  bool operator==(const ThinkingBudget&) const = default;
};

/// Tokens whose logprobs are reported at positions of the prompt, chosen per position: row i's behind the prompt's
/// first start + i + 1 tokens, in the place of the next one.
struct PromptLogprobIds {
  int64_t width = 0;        ///< ids of a row; 0: nothing is asked for
  SharedList<int32_t> ids;  ///< row after row; -1 where a row has fewer
  int64_t start = 0;        ///< >= 0
  int64_t num_rows() const { return width > 0 ? static_cast<int64_t>(ids.size()) / width : 0; }
  bool operator==(const PromptLogprobIds&) const = default;
};

/// What one row asks of the sampler; names and meanings of vLLM's SamplingParams. app/rows fills it from a record over
/// the job's defaults.
struct SamplingParams {
  int64_t n = 1;                  ///< samples; 1 to 16384, 1 when greedy
  double temperature = 1.0;       ///< [0, 2]; below 1e-5: greedy, and top_p, top_k, min_p are neutral
  double top_p = 1.0;             ///< (0, 1]
  int64_t top_k = 0;              ///< 0 or -1: off
  double min_p = 0.0;             ///< [0, 1]
  double presence_penalty = 0;    ///< [-2, 2]; of generated tokens
  double frequency_penalty = 0;   ///< [-2, 2]; of generated tokens
  double repetition_penalty = 1;  ///< > 0; of prompt and generated tokens
  std::optional<uint64_t> seed;
  std::optional<int64_t>
      max_tokens;  ///< >= 1 (0 with scores or hidden states of the prompt: nothing is
                   ///< generated); empty: what max_model_len leaves
  int64_t min_tokens = 0;             ///< nothing but a limit ends the sequence before this many
  std::vector<std::string> stop;      ///< non-empty strings
  std::vector<int32_t> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  bool spaces_between_special_tokens = true;  ///< false: none between added tokens that follow one another
  bool detokenize = true;                  ///< false: no text, and so no stop strings
  bool skip_reading_prefix_cache = false;  ///< also while the prompt is scored, which needs every position
  SharedList<std::pair<int32_t, float>> logit_bias;   ///< ascending ids; added to the logits, [-100, 100]
  SharedList<int32_t> allowed_token_ids;              ///< empty: all
  std::vector<std::vector<int32_t>> bad_words;        ///< token sequences that never appear; at most 128, none empty
  std::optional<int64_t> logprobs;         ///< most likely tokens reported per generated one; -1: the whole vocabulary
  std::optional<int64_t> prompt_logprobs;  ///< the same per prompt token
  PromptLogprobIds prompt_logprob_ids;     ///< a row for each prompt token behind the first start + 1
  std::vector<int32_t> logprob_token_ids;  ///< at most 128: reported instead of the most likely ones
  RepetitionDetection repetition_detection;
  std::optional<ThinkingBudget> thinking_budget;
  HiddenStates hidden_states = HiddenStates::kNone;  ///< of the prompt, once for all samples
  std::vector<int32_t> trace_decode_token_ids;  ///< generated instead of sampled ones, with their logprobs
  bool operator==(const SamplingParams&) const = default;
};

/// One thing wrong with a row: the field at fault and a sentence "temperature is -1; it must be between 0 and 2".
struct FieldError {
  std::string field;
  std::string message;
};

constexpr int64_t kMaxSamples = 16384;       ///< of one row; vLLM's
constexpr int64_t kDefaultMaxLogprobs = 20;  ///< vLLM's

/// The first violation of the table of rules, or nothing. vocab_size bounds token ids; max_logprobs (-1: no bound) what
/// logprobs and prompt_logprobs may ask for.
std::optional<FieldError> check(const SamplingParams& params, int64_t vocab_size,
                                int64_t max_logprobs = kDefaultMaxLogprobs);

/// Applies greedy forcing, clamps (0 < t < 0.01 becomes 0.01, biases end at +-100) and what one field implies for
/// another: logprob_token_ids ask for logprobs. Call after check().
SamplingParams normalized(SamplingParams params);

/// Positions of the prompt are scored: for the most likely tokens, or for some of their own.
inline bool scores_prompt(const SamplingParams& params) {
  return params.prompt_logprobs || params.prompt_logprob_ids.width > 0;
}

/// How the generated tokens become text.
text::DecodeOptions decode_options(const SamplingParams& params);

/// Takes the most likely token everywhere.
inline bool is_greedy(const SamplingParams& params) { return params.temperature < 1e-5; }

/// Penalties, biases or allowed ids change the logits of its samples: SlotSampling has penalties or a bias.
bool adjusts_logits(const SamplingParams& params);

/// Key of the random stream of sample `index` of a request. Two rounds of splitmix64's finalizer: for one index
/// distinct random keys give distinct results, for one random key distinct indices do. Part of what a job's results
/// depend on: never changed without changing the numerics' identity.
uint64_t sample_key(uint64_t random_key, int index);

/// What the device tables hold for a sequence: bias, allowed ids and bad words of one token as one list of biases.
/// top_k of vocab_size or more becomes 0 (off). params: checked and normalized.
SlotSampling slot_sampling(const SamplingParams& params, uint64_t key, int64_t vocab_size);

}  // namespace tokenmill
