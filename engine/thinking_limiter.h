#pragma once
#include <cstdint>
#include <span>

#include "engine/sampling.h"

namespace tokenmill {

/// Ends thinking that has used up its budget: says which token must come next. Thinking begins behind a start marker,
/// in the prompt or in what is generated, and ends with an end marker; the end marker's own tokens are not counted.
/// Stateless: a function of the generated tokens.
class ThinkingLimiter {
 public:
  explicit ThinkingLimiter(ThinkingBudget budget) : budget_(std::move(budget)) {}

  /// The token that must follow `generated` (all generated tokens so far), or -1. Costs O(budget) once thinking is as
  /// long as the budget, O(length of the markers) elsewhere.
  int32_t forced(std::span<const int32_t> generated) const;

 private:
  ThinkingBudget budget_;
};

/// Thinking tokens at the end of a prompt, behind its last start marker; -1 when none is open there.
int64_t num_open_thinking_tokens(std::span<const int32_t> prompt, std::span<const int32_t> start_token_ids,
                                 std::span<const int32_t> end_token_ids);

}  // namespace tokenmill
