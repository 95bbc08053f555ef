#include "engine/micro_batches.h"

#include <algorithm>

namespace tokenmill {
namespace {

/// Prompts are spread over so many rounds of plans. Simulated with plans whose time is proportional to their tokens,
/// rows of 20 to 420 and 5 to 105 tokens leave four stages bubbles of 26, 21, 16 and 12 % with 1, 2, 4 and 8 rounds;
/// but every round is one that a prompt waits for.
constexpr int64_t kRounds = 4;

}  // namespace

MicroBatches::MicroBatches(const RunnerLimits& limits, const SchedulerOptions& options)
    : num_stages_(limits.num_stages),
      num_batches_(limits.max_steps_in_flight),
      max_num_tokens_(limits.max_num_batched_tokens),
      min_num_tokens_(options.min_pipeline_tokens) {}

// The parts of num_batches_ plans in a row add up to num_decodes and differ by one at most.
int64_t MicroBatches::decode_share(int64_t num_decodes) const {
  if (!is_pipeline()) return num_decodes;
  const int64_t turn = num_launched_ % num_batches_;
  return std::max<int64_t>(1, (turn + 1) * num_decodes / num_batches_ - turn * num_decodes / num_batches_);
}

int64_t MicroBatches::prompt_share(int64_t num_tokens, int64_t num_decodes) const {
  if (!is_pipeline()) return max_num_tokens_;
  // The last plans' count, so that all parts of one long prompt are equal.
  const int64_t num_plans = kRounds * num_batches_;
  const int64_t even = (num_tokens + sum_recent_ + num_plans - 1) / num_plans;
  return std::min(max_num_tokens_, std::max({int64_t{1}, even, min_num_tokens_ - num_decodes}));
}

void MicroBatches::launched(int64_t num_prompt_tokens) {
  ++num_launched_;
  recent_.push_back(num_prompt_tokens);
  sum_recent_ += num_prompt_tokens;
  if (static_cast<int64_t>(recent_.size()) < kRounds * num_batches_) return;
  sum_recent_ -= recent_.front();
  recent_.pop_front();
}

void MicroBatches::drained() {
  recent_.clear();
  sum_recent_ = 0;
}

}  // namespace tokenmill
