#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/output_processor.h"
#include "engine/sample_constraints.h"
#include "engine/scheduler.h"

/// What engine.cpp and engine_results.cpp share; nobody else includes it.
namespace tokenmill {

struct Engine::Impl {
  struct Sample {
    Sequence* sequence;  // null when it has ended
    OutputProcessor processor;
    std::optional<RequestError> error = std::nullopt;
    int64_t logprob_bytes = 0;
  };
  // A request that waits or runs. Its sequences' handle is its index in active.
  struct Active {
    int64_t request_id;
    int64_t num_prompt_tokens;
    RequestTiming timing;
    int64_t num_scores;  // of prompt tokens that will come
    bool score_only;
    std::vector<Sample> samples = {};  // by index; one without tokens when score_only
    size_t num_unfinished = 0;
    bool lacks_hidden = false;
    int64_t num_scored = 0;  // of these, so many have come
    bool reports_prompt = false;
    int64_t num_unlisted = 0;  // of them, so many first ones have no list
    int64_t list_width = 0;
    std::vector<PositionLogprobs> prompt_logprobs = {};
    std::vector<float> prompt_token_id_logprobs = {};
    std::vector<float> hidden_state = {};
    int64_t logprob_bytes = 0;         // collected, of prompt and samples
    int64_t sample_logprob_bytes = 0;  // that each sample may collect
  };

  Impl(Runner& runner, TokenDecoderFactory decoders, const EngineOptions& options);

  // Requests in, steps out (engine.cpp).
  std::optional<RequestError> refusal(const Request& request, const SampleConstraints& constraints,
                                      int64_t max_num_tokens) const;
  void submit(Request request);
  int64_t take_handle();
  void add_samples(Active& entered, int64_t handle, Request request, int64_t max_generated,
                   std::shared_ptr<const SampleConstraints> constraints);
  void restore(Active& entered, RequestProgress progress);
  std::vector<std::pair<int64_t, RequestProgress>> take_unfinished();
  bool step();
  bool launch_next();
  void refresh_stats();

  // Results (engine_results.cpp).
  void hold(Active& request, int64_t bytes);
  void collect_oldest();
  void take_scores(const SequenceUpdate& update, double now_s);
  void take_hidden(const SequenceUpdate& update, double now_s);
  void take_token(Sequence& sequence, const SampledToken& token, double now_s);
  void end_sample(Sample& sample, Active& request, bool keep_cached = true);
  void fail(Sequence& sequence, RequestError error, double now_s);
  void complete(int64_t handle, double now_s);

  Runner& runner;
  TokenDecoderFactory make_decoder;
  EngineOptions options;
  const Clock& clock;
  Scheduler scheduler;
  std::vector<std::unique_ptr<Active>> active;
  std::vector<int64_t> free_handles;
  std::deque<Ticket> tickets;  // launched, not collected; oldest first
  StepPlan plan;               // reused
  std::vector<RequestOutput> finished;
  std::function<void(int64_t)> on_begin;
  Distributions distributions;
  StepMeter meter;
  EngineStats stats;
};

}  // namespace tokenmill
