#include "engine/output_processor.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill {

PositionLogprobs position_logprobs(const SampledToken& token) {
  PositionLogprobs all;
  all.reserve(token.top.size() + 1);
  all.push_back({token.token_id, token.logprob, token.rank});
  all.insert(all.end(), token.top.begin(), token.top.end());
  return all;
}

OutputProcessor::OutputProcessor(std::shared_ptr<const SamplingParams> sampling, std::span<const int32_t> eos_token_ids,
                                 int64_t max_generated_tokens, std::unique_ptr<TokenDecoder> decoder)
    : sampling_(std::move(sampling)),
      eos_token_ids_(sampling_->ignore_eos ? std::span<const int32_t>() : eos_token_ids),
      max_generated_tokens_(max_generated_tokens),
      repetition_(sampling_->repetition_detection),
      decoder_(std::move(decoder)) {
  TM_ASSERT(max_generated_tokens >= 0);
  TM_ASSERT(decoder_ != nullptr || sampling_->stop.empty(), "stop strings without text");
}

bool OutputProcessor::append(const SampledToken& token) {
  TM_ASSERT(!ended_ && token.status == SampleStatus::kFine);
  output_.token_ids.push_back(token.token_id);
  if (wants_logprobs()) output_.logprobs.push_back(position_logprobs(token));
  output_.cumulative_logprob += static_cast<double>(token.logprob);
  const bool repeats = repetition_.append(output_.token_ids) && num_tokens() >= sampling_->min_tokens;
  const bool is_end = num_tokens() >= sampling_->min_tokens && ends_sequence(token.token_id);
  if (decoder_ != nullptr && (!is_end || sampling_->include_stop_str_in_output))
    decoder_->append(token.token_id, output_.text);
  if (is_end) {
    end(FinishReason::kStop);
  } else if (cut_at_stop_string()) {
    ended_ = true;
  } else if (num_tokens() == max_generated_tokens_) {
    end(FinishReason::kLength);
  } else if (repeats) {
    end(FinishReason::kRepetition);
  }
  return ended_;
}

bool OutputProcessor::restore(const SampleProgress& progress) {
  TM_ASSERT(output_.token_ids.empty());
  TM_ASSERT(progress.logprobs.size() == (wants_logprobs() ? progress.token_ids.size() : 0),
            "{} tokens have the logprobs of {}", progress.token_ids.size(), progress.logprobs.size());
  for (size_t i = 0; i < progress.token_ids.size(); ++i) {
    SampledToken token{.token_id = progress.token_ids[i]};
    if (wants_logprobs()) {
      const PositionLogprobs& reported = progress.logprobs[i];
      token.logprob = reported.front().logprob;
      token.rank = reported.front().rank;
      token.top.assign(reported.begin() + 1, reported.end());
    }
    TM_ASSERT(!ended_, "a sequence that ended with token {} has {}", i, progress.token_ids.size());
    append(token);
  }
  output_.cumulative_logprob = progress.cumulative_logprob;
  return ended_;
}

SequenceOutput OutputProcessor::take() {
  TM_ASSERT(ended_);
  return std::move(output_);
}

bool OutputProcessor::ends_sequence(int32_t token_id) {
  if (std::find(eos_token_ids_.begin(), eos_token_ids_.end(), token_id) != eos_token_ids_.end()) return true;
  const std::vector<int32_t>& stop_ids = sampling_->stop_token_ids;
  if (std::find(stop_ids.begin(), stop_ids.end(), token_id) == stop_ids.end()) return false;
  output_.stop_reason = token_id;
  return true;
}

bool OutputProcessor::cut_at_stop_string() {
  std::string& text = output_.text;
  if (num_tokens() <= sampling_->min_tokens) {  // as in vLLM: this text may begin a match, not complete one
    searched_ = text.size();
    return false;
  }
  size_t start = std::string::npos;
  const std::string* found = nullptr;
  for (const std::string& stop : sampling_->stop) {
    // A match may begin in text that has been searched and end in what is new.
    const size_t from = searched_ - std::min(searched_, stop.size() - 1);
    const size_t at = text.find(stop, from);
    if (at == std::string::npos) continue;
    if (found == nullptr || at < start || (at == start && stop.size() < found->size())) {
      start = at;
      found = &stop;
    }
  }
  searched_ = text.size();
  if (found == nullptr) return false;
  text.resize(sampling_->include_stop_str_in_output ? start + found->size() : start);
  output_.finish_reason = FinishReason::kStop;
  output_.stop_reason = *found;
  return true;
}

void OutputProcessor::end(FinishReason reason) {
  ended_ = true;
  output_.finish_reason = reason;
  if (decoder_ == nullptr) return;
  decoder_->finish(output_.text);
  cut_at_stop_string();
}

}  // namespace tokenmill
