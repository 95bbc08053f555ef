#include "engine/sequence.h"

#include "kernels/core/check.h"

namespace tokenmill {

Sequence::Sequence(int64_t handle, std::vector<int32_t> prompt_token_ids, int64_t max_num_tokens,
                   const SlotSampling& sampling)
    : handle_(handle),
      token_ids_(std::move(prompt_token_ids)),
      num_prompt_tokens_(static_cast<int64_t>(token_ids_.size())),
      max_num_tokens_(max_num_tokens),
      sampling_(sampling) {
  TM_ASSERT(num_prompt_tokens_ > 0 && max_num_tokens > num_prompt_tokens_, "prompt {}, limit {}", num_prompt_tokens_,
            max_num_tokens);
}

int64_t Sequence::num_schedulable_tokens() const {
  return num_tokens() < max_num_tokens_ ? num_tokens() - num_computed_tokens_ : 0;
}

}  // namespace tokenmill
