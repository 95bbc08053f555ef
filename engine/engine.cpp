#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "engine/engine_impl.h"
#include "engine/row_errors.h"
#include "engine/text/tokenizer.h"
#include "kernels/core/check.h"
#include "kernels/core/log.h"

namespace tokenmill {
namespace {

const SteadyClock kSteadyClock;

class DetokenizerText final : public TokenDecoder {
 public:
  DetokenizerText(const text::Tokenizer& tokenizer, const text::DecodeOptions& options)
      : detokenizer_(tokenizer, options) {}
  void append(int32_t token_id, std::string& text) override { detokenizer_.push(token_id, text); }
  void finish(std::string& text) override { detokenizer_.finish(text); }

 private:
  text::Detokenizer detokenizer_;
};

TokenDecoderFactory decoders_of(const text::Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return nullptr;
  return [tokenizer](const Request& request) {
    return std::make_unique<DetokenizerText>(*tokenizer, decode_options(request.sampling));
  };
}

}  // namespace

Engine::Impl::Impl(Runner& runner, TokenDecoderFactory decoders, const EngineOptions& options)
    : runner(runner),
      make_decoder(std::move(decoders)),
      options(options),
      clock(options.clock != nullptr ? *options.clock : kSteadyClock),
      scheduler(runner.limits(), options.scheduler),
      meter(clock, distributions.step_tokens, options.on_step) {
  TM_ASSERT(!options.detokenize || make_decoder != nullptr, "text is wanted and there is no tokenizer");
  stats.kv_blocks_total = scheduler.blocks().num_total_blocks();
}

std::optional<RequestError> Engine::Impl::refusal(const Request& request, const SampleConstraints& constraints,
                                                  int64_t max_num_tokens) const {
  if (auto error = check_request(request, constraints, runner.limits(), options)) return error;
  const auto num_prompt_tokens = static_cast<int64_t>(request.prompt_token_ids.size());
  std::optional<FieldError> error = scheduler.refusal(
      num_prompt_tokens, max_num_tokens, request.sampling.hidden_states != HiddenStates::kNone);
  if (error) return invalid_request(std::move(*error));
  return std::nullopt;
}

void Engine::Impl::submit(Request request) {
  const double now_s = clock.now_s();
  const auto num_prompt_tokens = static_cast<int64_t>(request.prompt_token_ids.size());
  const SamplingParams& params = request.sampling;
  const bool score_only = params.max_tokens == 0;
  const int64_t room = std::max<int64_t>(1, runner.limits().max_model_len - num_prompt_tokens);
  const int64_t max_generated = score_only ? 0 : std::min(room, params.max_tokens.value_or(room));
  auto constraints = std::make_shared<const SampleConstraints>(params, options.eos_token_ids);
  if (std::optional<RequestError> error = refusal(request, *constraints, num_prompt_tokens + max_generated)) {
    RequestOutput output;
    output.request_id = request.request_id;
    output.num_prompt_tokens = num_prompt_tokens;
    output.error = std::move(error);
    output.timing.pulled_s = request.pulled_s.value_or(now_s);
    output.timing.finished_s = now_s;
    ++stats.num_failed;
    finished.push_back(std::move(output));
    return;
  }
  const int64_t first_scored = params.prompt_logprobs ? 0 : params.prompt_logprob_ids.start;
  const int64_t num_scores = scores_prompt(params) ? std::max<int64_t>(0, num_prompt_tokens - 1 - first_scored) : 0;
  const int64_t handle = take_handle();
  active[static_cast<size_t>(handle)] = std::make_unique<Active>(Active{
      request.request_id, num_prompt_tokens, {.pulled_s = request.pulled_s.value_or(now_s)}, num_scores, score_only});
  Active& entered = *active[static_cast<size_t>(handle)];
  entered.reports_prompt = params.prompt_logprobs.has_value();
  entered.lacks_hidden = params.hidden_states != HiddenStates::kNone;
  entered.num_unlisted = params.prompt_logprob_ids.start - first_scored;
  entered.list_width = params.prompt_logprob_ids.width;
  entered.sample_logprob_bytes =
      (options.max_row_logprob_bytes - prompt_logprob_bytes(request, runner.limits().vocab_size)) / params.n;
  if (score_only && num_scores == 0 && !entered.lacks_hidden) return complete(handle, now_s);  // there is nothing to compute
  meter.request_came(now_s);
  if (constraints->empty()) constraints.reset();
  add_samples(entered, handle, std::move(request), max_generated, std::move(constraints));
  if (entered.num_unfinished == 0) complete(handle, now_s);
}

int64_t Engine::Impl::take_handle() {
  if (free_handles.empty()) {
    active.emplace_back();
    return static_cast<int64_t>(active.size()) - 1;
  }
  const int64_t handle = free_handles.back();
  free_handles.pop_back();
  return handle;
}

void Engine::Impl::add_samples(Active& entered, int64_t handle, Request request, int64_t max_generated,
                               std::shared_ptr<const SampleConstraints> constraints) {
  const int num_samples = entered.score_only ? 1 : static_cast<int>(request.sampling.n);
  const auto params = std::make_shared<const SamplingParams>(request.sampling);
  const auto prompt = std::make_shared<const std::vector<int32_t>>(std::move(request.prompt_token_ids));
  RequestProgress& progress = request.progress;
  const bool goes_on = !progress.empty();
  TM_ASSERT(!goes_on || static_cast<int>(progress.samples.size()) == num_samples, "{} samples go on, {} are wanted",
            progress.samples.size(), num_samples);
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (int index = 0; index < num_samples; ++index) {
    std::unique_ptr<TokenDecoder> decoder = options.detokenize && params->detokenize ? make_decoder(request) : nullptr;
    entered.samples.push_back(
        {nullptr, OutputProcessor(params, options.eos_token_ids, max_generated, std::move(decoder))});
    Sample& sample = entered.samples.back();
    std::vector<int32_t> generated;
    if (goes_on) {
      if (sample.processor.restore(progress.samples[static_cast<size_t>(index)])) continue;
      generated = std::move(progress.samples[static_cast<size_t>(index)].token_ids);
    }
    sequences.push_back(
        std::make_unique<Sequence>(handle, prompt, entered.num_prompt_tokens + max_generated,
                                   SequenceSampling{params, sample_key(request.random_key, index), constraints},
                                   SequenceOptions{.sample_index = index,
                                                   .cache_identity = {.cache_salt = request.cache_salt},
                                                   .skip_reading_prefix_cache = params->skip_reading_prefix_cache,
                                                   .generated_before = std::move(generated),
                                                   .is_scored_before = goes_on}));
    sample.sequence = sequences.back().get();
  }
  entered.num_unfinished = sequences.size();
  if (goes_on) restore(entered, std::move(progress));
  if (!sequences.empty()) scheduler.add(std::move(sequences));
}

// What is known of the whole request; its tokens are in the samples' processors already.
void Engine::Impl::restore(Active& entered, RequestProgress progress) {
  for (size_t i = 0; i < entered.samples.size(); ++i) {
    int64_t bytes = 0;
    for (const PositionLogprobs& position : progress.samples[i].logprobs)
      bytes += logprob_bytes(static_cast<int64_t>(position.size()));
    entered.samples[i].logprob_bytes = bytes;
    hold(entered, bytes);
  }
  for (const PositionLogprobs& position : progress.prompt_logprobs)
    hold(entered, logprob_bytes(static_cast<int64_t>(position.size())));
  hold(entered, static_cast<int64_t>(progress.prompt_token_id_logprobs.size() * sizeof(float)));
  entered.num_scored = entered.num_scores;
  entered.prompt_logprobs = std::move(progress.prompt_logprobs);
  entered.prompt_token_id_logprobs = std::move(progress.prompt_token_id_logprobs);
  TM_ASSERT(entered.lacks_hidden != progress.hidden_state.empty(), "{} values of a hidden state go on",
            progress.hidden_state.size());
  entered.hidden_state = std::move(progress.hidden_state);
  entered.lacks_hidden = false;
}

// A request whose prompt is not done, or that failed already and waits for earlier samples, begins anew.
std::vector<std::pair<int64_t, RequestProgress>> Engine::Impl::take_unfinished() {
  while (!tickets.empty()) collect_oldest();
  std::vector<std::pair<int64_t, RequestProgress>> unfinished;
  for (std::unique_ptr<Active>& request : active) {
    if (request == nullptr) continue;
    int64_t num_tokens = 0;
    bool has_failed = false;
    for (const Sample& sample : request->samples) {
      num_tokens += sample.processor.num_tokens();
      has_failed = has_failed || sample.error.has_value();
    }
    if (num_tokens == 0 || has_failed) continue;
    TM_ASSERT(!request->lacks_hidden, "a prompt without its hidden state has an answer");
    TM_ASSERT(request->num_scored == request->num_scores, "a prompt with {} of {} scores has an answer",
              request->num_scored, request->num_scores);
    RequestProgress& progress = unfinished.emplace_back(request->request_id, RequestProgress{}).second;
    for (const Sample& sample : request->samples) progress.samples.push_back(sample.processor.progress());
    progress.prompt_logprobs = std::move(request->prompt_logprobs);
    progress.prompt_token_id_logprobs = std::move(request->prompt_token_id_logprobs);
    progress.hidden_state = std::move(request->hidden_state);
  }
  active.clear();
  free_handles.clear();
  return unfinished;
}

bool Engine::Impl::step() {
  const double start_s = clock.now_s();
  while (static_cast<int>(tickets.size()) < runner.limits().max_steps_in_flight && launch_next()) {
  }
  if (tickets.empty()) return false;
  collect_oldest();
  stats.step_seconds += clock.now_s() - start_s;
  return true;
}

bool Engine::Impl::launch_next() {
  meter.begin_schedule();
  const int64_t prompt_tokens_before = scheduler.stats().num_computed_prompt_tokens;
  if (!scheduler.schedule(plan, stats.logprob_bytes_now <= options.max_logprob_bytes)) {
    meter.end_schedule();
    return false;
  }
  if (!scheduler.admitted().empty()) {
    const double now_s = clock.now_s();
    for (const Sequence* sequence : scheduler.admitted()) {
      Active& request = *active[static_cast<size_t>(sequence->handle())];
      if (request.timing.first_scheduled_s) continue;
      request.timing.first_scheduled_s = now_s;
      if (on_begin) on_begin(request.request_id);
    }
  }
  log::trace("step {}: {} tokens of {} sequences, {} new, {} finished; {} running, {} waiting, {} of {} KV blocks",
             plan.step_id, plan.num_tokens(), plan.scheduled.size(), plan.new_slots.size(), plan.finished.size(),
             scheduler.num_running(), scheduler.num_waiting(), scheduler.blocks().num_used_blocks(),
             stats.kv_blocks_total);
  meter.launching(plan, {.num_prompt_tokens = scheduler.stats().num_computed_prompt_tokens - prompt_tokens_before,
                         .num_used_blocks = scheduler.blocks().num_used_blocks(),
                         .num_running = scheduler.num_running(),
                         .num_waiting = scheduler.num_waiting()});
  tickets.push_back(runner.launch(plan));
  ++stats.num_steps;
  stats.sum_running += scheduler.num_running();
  stats.kv_blocks_used_peak = std::max(stats.kv_blocks_used_peak, scheduler.blocks().num_used_blocks());
  return true;
}

void Engine::Impl::refresh_stats() {
  stats.times = meter.times();
  const SchedulerStats& planned = scheduler.stats();
  stats.num_prompt_tokens = planned.num_prompt_tokens;
  stats.num_computed_prompt_tokens = planned.num_computed_prompt_tokens;
  stats.num_preemptions = planned.num_preemptions;
  stats.num_recomputed_tokens = planned.num_recomputed_tokens;
  stats.prefix_cache_queries = planned.num_queried_tokens;
  stats.prefix_cache_hits = planned.num_hit_tokens;
  stats.sum_kv_waste = planned.sum_kv_waste;
  stats.sum_kv_shared_blocks = planned.sum_kv_shared_blocks;
  stats.num_running_now = scheduler.num_running();
  stats.num_waiting_now = scheduler.num_waiting();
  stats.plan_seconds = scheduler.plan_seconds();
  stats.kv_blocks_used_now = scheduler.blocks().num_used_blocks();
}

Engine::Engine(Runner& runner, const text::Tokenizer* tokenizer, const EngineOptions& options)
    : Engine(runner, decoders_of(tokenizer), options) {}

Engine::Engine(Runner& runner, TokenDecoderFactory decoders, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(runner, std::move(decoders), options)) {}

Engine::~Engine() = default;

void Engine::submit(Request request) {
  impl_->submit(std::move(request));
  impl_->refresh_stats();
}

bool Engine::step() {
  const bool worked = impl_->step();
  impl_->refresh_stats();
  return worked;
}

void Engine::on_begin(std::function<void(int64_t)> callback) { impl_->on_begin = std::move(callback); }

void Engine::close_admission() { impl_->scheduler.close_admission(); }

std::vector<std::pair<int64_t, RequestProgress>> Engine::take_unfinished() {
  std::vector<std::pair<int64_t, RequestProgress>> unfinished = impl_->take_unfinished();
  impl_->refresh_stats();
  return unfinished;
}

std::vector<RequestOutput> Engine::take_finished() { return std::exchange(impl_->finished, {}); }

bool Engine::idle() const { return num_unfinished() == 0 && impl_->tickets.empty(); }

int64_t Engine::num_unfinished() const {
  return static_cast<int64_t>(impl_->active.size() - impl_->free_handles.size());
}

const EngineStats& Engine::stats() const { return impl_->stats; }

const Distributions& Engine::distributions() const { return impl_->distributions; }

void Engine::forget_distributions() { impl_->distributions = {}; }

}  // namespace tokenmill
