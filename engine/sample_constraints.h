#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/sampling.h"
#include "engine/thinking_limiter.h"

namespace tokenmill {

/// The parameters of a row that look at what has been generated: min_tokens, bad_words of several tokens,
/// thinking_budget, trace_decode_token_ids. (What is the same at every position is in SlotSampling.) Immutable: the
/// next token's constraints are a function of the tokens before it.
class SampleConstraints {
 public:
  /// params: checked and normalized; eos_token_ids: of the model, empty with ignore_eos.
  SampleConstraints(const SamplingParams& params, std::span<const int32_t> eos_token_ids);

  /// No position has any: next() need not be called.
  bool empty() const;
  /// next() reads the ids of all generated tokens: a step may be planned only when the last one has been collected.
  bool needs_history() const { return !sequences_.empty() || thinking_.has_value(); }
  /// The most ids next() ever masks at one position.
  int64_t max_masked_token_ids() const { return static_cast<int64_t>(end_token_ids_.size() + sequences_.size()); }
  /// Fills out for generated token number num_generated (0-based). generated: the tokens before it, all of them with
  /// needs_history(); else it is not read.
  void next(int64_t num_generated, std::span<const int32_t> generated, StepConstraints& out) const;

 private:
  int64_t min_tokens_;
  std::vector<int32_t> end_token_ids_;           // masked before min_tokens_
  std::vector<std::vector<int32_t>> sequences_;  // bad words of more than one token
  std::vector<int32_t> trace_;
  std::optional<ThinkingLimiter> thinking_;
};

}  // namespace tokenmill
