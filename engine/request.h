#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/logprobs.h"
#include "engine/sampling.h"

namespace tokenmill {

/// What a sample of an unfinished request had come to.
struct SampleProgress {
  std::vector<int32_t> token_ids;
  double cumulative_logprob = 0;
  std::vector<PositionLogprobs> logprobs;  ///< one per token when asked for, else empty
  bool operator==(const SampleProgress&) const = default;
};

/// What an unfinished request had come to: a request that carries it goes on from there, to the same result.
struct RequestProgress {
  std::vector<SampleProgress> samples;  ///< all of them, by index; empty: nothing yet
  /// Of the whole prompt, as RequestOutput has them.
  std::vector<PositionLogprobs> prompt_logprobs;
  std::vector<float> prompt_token_id_logprobs;
  std::vector<float> hidden_state;
  bool empty() const { return samples.empty(); }
  bool operator==(const RequestProgress&) const = default;
};

/// What was asked: one parsed and tokenized row. Immutable once submitted.
struct Request {
  int64_t request_id = 0;  ///< the caller's handle, unique among unfinished requests; never part of a result's content
  std::vector<int32_t> prompt_token_ids;  ///< not empty
  SamplingParams sampling;                ///< checked and normalized
  /// Key of the random stream: made from the row's own seed when it has one, else from job seed and row identity.
  /// Sample i of the request uses sample_key(random_key, i); position comes in at the draw (kernels/random.h).
  uint64_t random_key = 0;
  /// Rows share cached KV only with rows of the same salt.
  std::string cache_salt;
  /// When the replica pulled the row, on kernels/core/clock: its clock starts there. Empty: when it is submitted.
  std::optional<double> pulled_s = {};
  RequestProgress progress = {};  ///< of an earlier engine with the same model
};

enum class FinishReason : uint8_t { kStop, kLength, kRepetition };
const char* to_string(FinishReason reason);  ///< "stop", "length", "repetition"

/// Which stop string or stop token id ended a sequence; empty for end-of-sequence and length.
using StopReason = std::variant<std::monostate, std::string, int32_t>;

/// One finished sample.
struct SequenceOutput {
  int index = 0;
  std::string text;                ///< detokenized, stop string cut unless asked for
  std::vector<int32_t> token_ids;  ///< all generated ids, stop and end tokens included
  FinishReason finish_reason = FinishReason::kStop;
  StopReason stop_reason;
  double cumulative_logprob = 0;           ///< natural log, raw logits, sum in order of generation
  std::vector<PositionLogprobs> logprobs;  ///< one per generated token when asked for, else empty
};

/// Why a request failed inside the engine: the row gets this error, the others go on.
struct RequestError {
  std::string code;   ///< "invalid_request" (the row's fault) or "internal"
  std::string field;  ///< may be empty
  std::string message;
};

/// Depends on time and place; goes to row metrics, never into results. Seconds on kernels/core/clock; what they mean
/// together: engine/README.md, row_times.h.
struct RequestTiming {
  double pulled_s = 0;
  std::optional<double> first_scheduled_s = {}, first_token_s = {};  ///< empty when it did not get that far
  double last_token_s = 0, finished_s = 0;
  double max_interval_s = 0;  ///< between emissions
  int64_t num_intervals = 0;
  int64_t num_cached_tokens = 0, num_preemptions = 0;
};

/// The result of one request, delivered once.
struct RequestOutput {
  int64_t request_id = 0;
  std::vector<SequenceOutput> outputs;            ///< empty when error is set
  std::vector<PositionLogprobs> prompt_logprobs;  ///< of prompt tokens 1, 2, ... (the first has none), when asked for
  /// Of prompt_logprob_ids, row after row; minus infinity where a row has fewer ids.
  std::vector<float> prompt_token_id_logprobs;
  std::vector<float> hidden_state;  ///< [hidden_size], when SamplingParams::hidden_states asks for it
  int64_t num_prompt_tokens = 0;
  int64_t num_completion_tokens = 0;  ///< of all outputs
  std::optional<RequestError> error;
  RequestTiming timing;
};

}  // namespace tokenmill
