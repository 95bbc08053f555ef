#include <algorithm>
#include <span>
#include <utility>

#include "engine/engine_impl.h"
#include "engine/row_errors.h"
#include "engine/row_times.h"

// What steps bring back: tokens and scores into the requests that want them, and the ends of these.
namespace tokenmill {

void Engine::Impl::hold(Active& request, int64_t bytes) {
  request.logprob_bytes += bytes;
  stats.logprob_bytes_now += bytes;
  stats.logprob_bytes_peak = std::max(stats.logprob_bytes_peak, stats.logprob_bytes_now);
}

void Engine::Impl::collect_oldest() {
  const StepResult result = runner.collect(tickets.front());
  tickets.pop_front();
  const double now_s = meter.collected(result);
  for (const SequenceUpdate& update : scheduler.update(result)) {
    Sequence& sequence = *update.sequence;
    // What comes behind a sequence's end is dropped, and what comes to a sample whose request has failed.
    if (sequence.status() == SequenceStatus::kRunning) take_scores(update, now_s);
    if (sequence.status() == SequenceStatus::kRunning) take_hidden(update, now_s);
    for (const SampledToken& token : update.tokens) {
      if (sequence.status() != SequenceStatus::kRunning) break;
      take_token(sequence, token, now_s);
    }
  }
  meter.results_taken(scheduler.num_running() + scheduler.num_waiting() > 0);
}

void Engine::Impl::take_scores(const SequenceUpdate& update, double now_s) {
  Sequence& sequence = *update.sequence;
  Active& request = *active[static_cast<size_t>(sequence.handle())];
  std::span<const float> listed = update.listed;
  if (const int64_t none = request.num_unlisted - request.num_scored; none > 0 && !listed.empty())
    listed = listed.subspan(static_cast<size_t>(none * request.list_width));
  for (const SampledToken& token : update.scored) {
    if (token.status != SampleStatus::kFine) {
      const int64_t first = sequence.num_prompt_tokens() - request.num_scores;  // 0-based, of the first that is scored
      return fail(sequence, non_finite_logits("prompt", first + request.num_scored), now_s);
    }
    ++request.num_scored;
    if (!request.reports_prompt) continue;
    request.prompt_logprobs.push_back(position_logprobs(token));
    hold(request, logprob_bytes(static_cast<int64_t>(request.prompt_logprobs.back().size())));
  }
  std::vector<float>& all_listed = request.prompt_token_id_logprobs;
  all_listed.insert(all_listed.end(), listed.begin(), listed.end());
  hold(request, static_cast<int64_t>(listed.size() * sizeof(float)));
}

/// Also ends a request that generates nothing, when it has all it asked for.
void Engine::Impl::take_hidden(const SequenceUpdate& update, double now_s) {
  Sequence& sequence = *update.sequence;
  Active& request = *active[static_cast<size_t>(sequence.handle())];
  if (request.lacks_hidden && !update.hidden.empty()) {
    request.hidden_state.assign(update.hidden.begin(), update.hidden.end());
    request.lacks_hidden = false;
    if (const auto index = first_non_finite(request.hidden_state))
      return fail(sequence, non_finite_hidden_state(*index), now_s);
  }
  if (!request.score_only || request.num_scored < request.num_scores || request.lacks_hidden) return;
  end_sample(request.samples.front(), request);
  complete(sequence.handle(), now_s);
}

void Engine::Impl::take_token(Sequence& sequence, const SampledToken& token, double now_s) {
  Active& request = *active[static_cast<size_t>(sequence.handle())];
  Sample& sample = request.samples[static_cast<size_t>(sequence.sample_index())];
  if (token.status != SampleStatus::kFine) {
    const int64_t number = sample.processor.num_tokens() + 1;
    return fail(
        sequence,
        token.status == SampleStatus::kNonFinite ? non_finite_logits("generated", number) : nothing_allowed(number),
        now_s);
  }
  if (sample.processor.wants_logprobs()) {
    const auto num_reported = static_cast<int64_t>(token.top.size()) + 1;
    sample.logprob_bytes += logprob_bytes(num_reported);
    if (sample.logprob_bytes > request.sample_logprob_bytes) {
      return fail(sequence,
                  too_many_logprobs(sample.processor.num_tokens() + 1, num_reported, request.sample_logprob_bytes),
                  now_s);
    }
    hold(request, logprob_bytes(num_reported));
  }
  ++stats.num_generation_tokens;
  note_emission(request.timing, now_s, distributions.itl_s);
  if (!sample.processor.append(token)) return;
  end_sample(sample, request);
  if (request.num_unfinished == 0) complete(sequence.handle(), now_s);
}

void Engine::Impl::end_sample(Sample& sample, Active& request, bool keep_cached) {
  request.timing.num_preemptions += sample.sequence->num_preemptions();
  if (sample.sequence->sample_index() == 0) request.timing.num_cached_tokens = sample.sequence->num_cached_tokens();
  scheduler.finish(*sample.sequence, keep_cached);
  sample.sequence = nullptr;
  --request.num_unfinished;
}

// The samples behind one that fails end with it. Those before it go on: the request's error is that of its first sample
// that fails, whichever comes first in time.
void Engine::Impl::fail(Sequence& sequence, RequestError error, double now_s) {
  const int64_t handle = sequence.handle();
  Active& request = *active[static_cast<size_t>(handle)];
  const auto index = static_cast<size_t>(sequence.sample_index());
  const bool keep_cached = error.code != "internal";
  request.samples[index].error = std::move(error);
  end_sample(request.samples[index], request, keep_cached);
  for (size_t i = request.samples.size(); i > index + 1;
       --i) {  // the last first: none takes another's place in the queue
    if (request.samples[i - 1].sequence != nullptr) end_sample(request.samples[i - 1], request);
  }
  if (request.num_unfinished == 0) complete(handle, now_s);
}

// A prompt that is only scored has one output without tokens.
void Engine::Impl::complete(int64_t handle, double now_s) {
  std::unique_ptr<Active>& request = active[static_cast<size_t>(handle)];
  stats.logprob_bytes_now -= request->logprob_bytes;
  RequestOutput output;
  const auto failed = std::find_if(request->samples.begin(), request->samples.end(),
                                   [](const Sample& sample) { return sample.error.has_value(); });
  if (failed != request->samples.end()) {
    output.error = std::move(failed->error);
    ++stats.num_failed;
  } else {
    output.prompt_logprobs = std::move(request->prompt_logprobs);
    output.prompt_token_id_logprobs = std::move(request->prompt_token_id_logprobs);
    output.hidden_state = std::move(request->hidden_state);
    if (request->score_only) output.outputs.emplace_back().finish_reason = FinishReason::kLength;
    for (size_t i = 0; i < request->samples.size() && !request->score_only; ++i) {
      output.num_completion_tokens += request->samples[i].processor.num_tokens();
      output.outputs.push_back(request->samples[i].processor.take());
      output.outputs.back().index = static_cast<int>(i);
    }
    ++stats.num_finished;
  }
  output.request_id = request->request_id;
  output.num_prompt_tokens = request->num_prompt_tokens;
  output.timing = request->timing;
  output.timing.finished_s = now_s;
  note_finished(output, distributions);
  finished.push_back(std::move(output));
  request.reset();
  free_handles.push_back(handle);
}

}  // namespace tokenmill
