#include "engine/sample_constraints.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill {

SampleConstraints::SampleConstraints(const SamplingParams& params, std::span<const int32_t> eos_token_ids)
    : min_tokens_(params.min_tokens), trace_(params.trace_decode_token_ids) {
  if (min_tokens_ > 0) {
    end_token_ids_ = params.stop_token_ids;
    if (!params.ignore_eos) end_token_ids_.insert(end_token_ids_.end(), eos_token_ids.begin(), eos_token_ids.end());
  }
  std::copy_if(params.bad_words.begin(), params.bad_words.end(), std::back_inserter(sequences_),
               [](const std::vector<int32_t>& word) { return word.size() > 1; });
  if (params.thinking_budget) thinking_.emplace(*params.thinking_budget);
}

bool SampleConstraints::empty() const { return end_token_ids_.empty() && trace_.empty() && !needs_history(); }

void SampleConstraints::next(int64_t num_generated, std::span<const int32_t> generated, StepConstraints& out) const {
  out.forced_token_id =
      num_generated < static_cast<int64_t>(trace_.size()) ? trace_[static_cast<size_t>(num_generated)] : -1;
  out.masked_token_ids.clear();
  if (num_generated < min_tokens_) out.masked_token_ids = end_token_ids_;
  if (!needs_history()) return;
  TM_ASSERT(static_cast<int64_t>(generated.size()) == num_generated, "{} of {} generated tokens are known",
            generated.size(), num_generated);
  if (thinking_ && out.forced_token_id < 0) out.forced_token_id = thinking_->forced(generated);
  for (const std::vector<int32_t>& word : sequences_) {
    const std::span<const int32_t> before = std::span(word).first(word.size() - 1);
    if (before.size() <= generated.size() && std::ranges::equal(before, generated.last(before.size()))) {
      out.masked_token_ids.push_back(word.back());
    }
  }
}

}  // namespace tokenmill
