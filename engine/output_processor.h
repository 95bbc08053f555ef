#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/repetition_detector.h"
#include "engine/request.h"
#include "engine/runner.h"

namespace tokenmill {

/// A token and the tokens reported besides it.
PositionLogprobs position_logprobs(const SampledToken& token);

/// Turns the token ids of one sequence into text as they come. engine/text implements it; tests fake it.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  /// Appends to text what token_id completes: nothing, when it ends inside a character.
  virtual void append(int32_t token_id, std::string& text) = 0;
  /// No more ids come: appends what is still held (U+FFFD for an unfinished character).
  virtual void finish(std::string& text) = 0;
};

/// Makes the decoder of a request's next sequence.
using TokenDecoderFactory = std::function<std::unique_ptr<TokenDecoder>(const Request&)>;

/// The sampled tokens of one sequence on their way to its SequenceOutput: text, stop strings, end tokens, limits.
/// Rules, in the order in which a token meets them:
///   1. An end-of-sequence id (unless ignore_eos), else a stop token id, ends the sequence; its id stays in token_ids,
///      its text counts only with include_stop_str_in_output.
///   2. A stop string that the text now contains ends it; text is cut before it (after it with
///      include_stop_str_in_output). Of several the one that starts first counts, of those the shortest.
///   3. The last token allowed ends it with kLength.
///   4. Tokens that repeat as repetition_detection says end it with kRepetition.
/// Before min_tokens only rule 3 holds, and a stop string must end behind the text of the first min_tokens tokens.
/// With logprobs every id in token_ids has its entry, end tokens included.
/// The text held back for an unfinished character is released at the end, and searched for stop strings like any other.
class OutputProcessor {
 public:
  /// eos_token_ids outlives the processor. max_generated_tokens >= 0 (0: append() is never called). decoder may be
  /// null: no text, and then no stop strings in sampling.
  OutputProcessor(std::shared_ptr<const SamplingParams> sampling, std::span<const int32_t> eos_token_ids,
                  int64_t max_generated_tokens, std::unique_ptr<TokenDecoder> decoder);

  /// Takes the next token (its status is kFine). Returns true when the sequence ends with it; no token may follow.
  bool append(const SampledToken& token);
  /// Takes the tokens of an earlier processor of the same sample, before any other. Returns true when the last of them
  /// ends the sequence.
  bool restore(const SampleProgress& progress);
  /// What has been taken so far.
  SampleProgress progress() const { return {output_.token_ids, output_.cumulative_logprob, output_.logprobs}; }
  bool wants_logprobs() const { return sampling_->logprobs.has_value(); }
  int64_t num_tokens() const { return static_cast<int64_t>(output_.token_ids.size()); }
  /// The result; once, after append() returned true.
  SequenceOutput take();

 private:
  bool ends_sequence(int32_t token_id);
  bool cut_at_stop_string();
  void end(FinishReason reason);

  std::shared_ptr<const SamplingParams> sampling_;  // all samples'
  std::span<const int32_t> eos_token_ids_;          // empty with ignore_eos
  int64_t max_generated_tokens_;
  RepetitionDetector repetition_;
  std::unique_ptr<TokenDecoder> decoder_;
  SequenceOutput output_;
  size_t searched_ = 0;  // text before this holds no stop string
  bool ended_ = false;
};

}  // namespace tokenmill
