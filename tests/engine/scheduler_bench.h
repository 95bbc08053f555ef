#pragma once
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/scheduler.h"
#include "tests/support/fake_runner.h"

namespace tokenmill::test {

using Ids = std::vector<int32_t>;

inline std::shared_ptr<const Ids> shared(Ids ids) { return std::make_shared<const Ids>(std::move(ids)); }

inline SequenceSampling sampling_with_key(uint64_t key) { return {std::make_shared<const SamplingParams>(), key}; }

inline RunnerLimits small_limits() {
  RunnerLimits limits;
  limits.kv_groups = {{.block_size = 16}};
  limits.num_blocks = {64};
  limits.max_num_seqs = 4;
  limits.max_num_batched_tokens = 32;
  limits.max_logits_rows = 4;
  limits.max_model_len = 256;
  limits.vocab_size = 1000;
  return limits;
}

/// A scheduler on a fake runner, stepped by hand.
struct SchedulerBench {
  explicit SchedulerBench(const RunnerLimits& limits, const SchedulerOptions& options = {}, bool allow_rewinds = false)
      : model{limits.kv_groups, limits.vocab_size, 5, 0},
        runner(model, limits, allow_rewinds),
        scheduler(runner.limits(), options) {}

  /// Its prompt begins as no other handle's does.
  static Ids prompt_of(int64_t handle, int64_t num_tokens) {
    Ids prompt;
    for (int64_t i = 0; i < num_tokens; ++i) prompt.push_back(static_cast<int32_t>((handle * 31 + i) % 1000));
    return prompt;
  }
  void add(int64_t handle, int64_t num_prompt_tokens, int64_t max_new_tokens) {
    add(handle, prompt_of(handle, num_prompt_tokens), max_new_tokens);
  }
  void add(int64_t handle, const Ids& prompt, int64_t max_new_tokens, const std::string& salt = "") {
    scheduler.add(std::make_unique<Sequence>(handle, shared(prompt),
                                             static_cast<int64_t>(prompt.size()) + max_new_tokens, sampling_with_key(0),
                                             SequenceOptions{.cache_identity = {.cache_salt = salt}}));
  }
  /// Samples with the keys 0, 1, ...
  void add_samples(int64_t handle, const Ids& prompt, int64_t max_new_tokens, int num_samples) {
    std::vector<std::unique_ptr<Sequence>> samples;
    for (int i = 0; i < num_samples; ++i) {
      samples.push_back(
          std::make_unique<Sequence>(handle, shared(prompt), static_cast<int64_t>(prompt.size()) + max_new_tokens,
                                     sampling_with_key(static_cast<uint64_t>(i)), SequenceOptions{.sample_index = i}));
    }
    scheduler.add(std::move(samples));
  }
  /// What a sequence's tokens are when it runs alone.
  Ids alone(Ids tokens, int64_t max_new_tokens, uint64_t key = 0) const {
    for (; max_new_tokens > 0; --max_new_tokens) tokens.push_back(model.next(tokens, key).token_id);
    return tokens;
  }
  /// Steps until nothing waits or runs; sequences end at their longest. Returns their tokens in order of completion.
  std::vector<std::pair<int64_t, Ids>> run() {
    std::vector<std::pair<int64_t, Ids>> ended;
    while (scheduler.num_running() + scheduler.num_waiting() > 0) {
      for (Sequence* sequence : step()) {
        if (sequence->num_known_tokens() < sequence->max_num_tokens()) continue;
        ended.emplace_back(sequence->handle(), sequence->token_ids());
        scheduler.finish(*sequence);
      }
      scheduler.audit();
    }
    return ended;
  }
  bool launch() {
    if (!scheduler.schedule(plan)) return false;
    tickets.push_back(runner.launch(plan));
    return true;
  }
  std::vector<Sequence*> collect() {
    result = runner.collect(tickets.front());
    tickets.erase(tickets.begin());
    std::vector<Sequence*> updated;
    for (const SequenceUpdate& update : scheduler.update(result)) updated.push_back(update.sequence);
    return updated;
  }
  std::vector<Sequence*> step() {
    REQUIRE(launch());
    return collect();
  }
  /// "slot:start+num_tokens", with '*' when logits are wanted and '~' when the token is the last sampled one.
  std::string scheduled() const {
    std::string text;
    for (const ScheduledSlot& s : plan.scheduled) {
      text += fmt::format("{}{}:{}+{}{}{}", text.empty() ? "" : " ", s.slot, s.start, s.num_tokens,
                          s.source == TokenSource::kLastSampled ? "~" : "", s.logits_rows.empty() ? "" : "*");
    }
    return text;
  }

  test::FakeModel model;
  test::FakeRunner runner;
  Scheduler scheduler;
  StepPlan plan;
  StepResult result;
  std::vector<Ticket> tickets;
};

}  // namespace tokenmill::test
