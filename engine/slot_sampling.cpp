#include "engine/slot_sampling.h"

#include "engine/plan_bytes.h"

namespace tokenmill {

template <typename Out>
void write(Out& out, const SlotSampling& sampling) {
  out.value(sampling.temperature);
  out.value(sampling.top_p);
  out.value(sampling.min_p);
  out.value(sampling.top_k);
  out.value(sampling.key);
  out.value(sampling.presence_penalty);
  out.value(sampling.frequency_penalty);
  out.value(sampling.repetition_penalty);
  out.value(static_cast<uint8_t>(sampling.only_biased));
  write_count(out, sampling.bias);
  for (const TokenBias& entry : sampling.bias) {
    out.value(entry.token_id);
    out.value(entry.bias);
  }
  out.value(sampling.num_logprobs);
  out.ids(sampling.logprob_token_ids);
  out.value(sampling.num_prompt_logprobs);
}

template <typename Out>
void write(Out& out, const std::vector<StepConstraints>& constraints) {
  write_count(out, constraints);
  for (const StepConstraints& row : constraints) {
    out.value(row.forced_token_id);
    out.ids(row.masked_token_ids);
  }
}

template void write(PlanByteCount&, const SlotSampling&);
template void write(PlanWriter&, const SlotSampling&);
template void write(PlanByteCount&, const std::vector<StepConstraints>&);
template void write(PlanWriter&, const std::vector<StepConstraints>&);

SlotSampling read_slot_sampling(PlanReader& in) {
  SlotSampling sampling;
  sampling.temperature = in.value<float>("temperature");
  sampling.top_p = in.value<float>("top_p");
  sampling.min_p = in.value<float>("min_p");
  sampling.top_k = in.value<int32_t>("top_k");
  sampling.key = in.value<uint64_t>("key");
  sampling.presence_penalty = in.value<float>("presence_penalty");
  sampling.frequency_penalty = in.value<float>("frequency_penalty");
  sampling.repetition_penalty = in.value<float>("repetition_penalty");
  sampling.only_biased = in.flag("only_biased");
  sampling.bias.resize(in.count("bias", 8));
  for (TokenBias& entry : sampling.bias) {
    entry.token_id = in.value<int32_t>("bias.token_id");
    entry.bias = in.value<float>("bias.bias");
  }
  sampling.num_logprobs = in.value<int32_t>("num_logprobs");
  in.ids("logprob_token_ids", sampling.logprob_token_ids);
  sampling.num_prompt_logprobs = in.value<int32_t>("num_prompt_logprobs");
  return sampling;
}

std::vector<StepConstraints> read_step_constraints(PlanReader& in) {
  std::vector<StepConstraints> constraints(in.count("constraints", 8));
  for (StepConstraints& row : constraints) {
    row.forced_token_id = in.value<int32_t>("forced_token_id");
    in.ids("masked_token_ids", row.masked_token_ids);
  }
  return constraints;
}

}  // namespace tokenmill
