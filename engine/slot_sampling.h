#pragma once
#include <cstdint>
#include <vector>

namespace tokenmill {

class PlanReader;

/// What is added to one id's logit; minus infinity masks it.
struct TokenBias {
  int32_t token_id = 0;
  float bias = 0;
  bool operator==(const TokenBias&) const = default;
};

/// Sampling state of a slot as the device tables hold it: what is the same at every position of its sequence.
struct SlotSampling {
  float temperature = 0;  ///< 0: greedy
  float top_p = 1;
  float min_p = 0;
  int32_t top_k = 0;  ///< 0: off
  uint64_t key = 0;
  float presence_penalty = 0, frequency_penalty = 0;
  float repetition_penalty = 1;
  bool only_biased = false;     ///< ids that stand not in bias are masked
  std::vector<TokenBias> bias;  ///< ascending ids
  int32_t num_logprobs = -1;    ///< tokens reported besides each sampled one; -1: not even the sampled one's rank
  std::vector<int32_t> logprob_token_ids;  ///< these, num_logprobs of them, instead of the most likely; else empty
  int32_t num_prompt_logprobs = -1;        ///< most likely tokens reported per prompt token; -1: prompt not scored

  bool has_penalties() const { return presence_penalty != 0 || frequency_penalty != 0 || repetition_penalty != 1; }
  bool has_bias() const { return only_biased || !bias.empty(); }
  bool operator==(const SlotSampling&) const = default;
};

/// What the next token of one sequence must be, or must not.
struct StepConstraints {
  int32_t forced_token_id = -1;           ///< -1: sampled
  std::vector<int32_t> masked_token_ids;  ///< their logits count as minus infinity; at most kMaxMaskedTokenIds
  bool operator==(const StepConstraints&) const = default;
};
/// Runners have room for so many masked ids per logits row.
constexpr int64_t kMaxMaskedTokenIds = 256;

/// And for so many ids of SlotSampling::logprob_token_ids.
constexpr int64_t kMaxLogprobTokenIds = 128;

/// Their bytes in a step plan (format in step_plan.cpp). Out: PlanByteCount or PlanWriter of plan_bytes.h.
template <typename Out>
void write(Out& out, const SlotSampling& sampling);
template <typename Out>
void write(Out& out, const std::vector<StepConstraints>& constraints);
SlotSampling read_slot_sampling(PlanReader& in);
std::vector<StepConstraints> read_step_constraints(PlanReader& in);

}  // namespace tokenmill
