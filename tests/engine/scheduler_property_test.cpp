// Random jobs through the scheduler alone, with rewinds and ends at random moments: the mechanism of speculation and of
// samples that are taken back. A sequence's tokens must be those of one-at-a-time execution whatever is taken back,
// shared or preempted, and every count must equal a recount after every step.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <random>

#include "engine/scheduler.h"
#include "tests/support/fake_runner.h"
#include "tests/support/sanitized.h"

namespace tokenmill {
namespace {

using Ids = std::vector<int32_t>;

class RewindingJob {
 public:
  explicit RewindingJob(uint64_t seed)
      : random_(seed),
        limits_(make_limits()),
        model_{limits_.kv_groups, limits_.vocab_size, seed, 0},
        runner_(model_, limits_, /*allow_rewinds=*/true),
        scheduler_(limits_, make_options()) {
    for (int64_t i = between(1, 3); i > 0; --i) openings_.push_back(random_ids(between(1, 20)));
  }

  void run() {
    int64_t requests_left = between(1, 8);
    for (int step = 0; requests_left > 0 || !scheduler_idle(); ++step) {
      REQUIRE(step < 5000);
      for (; requests_left > 0 && (scheduler_idle() || random_() % 2 == 0); --requests_left) add_request();
      while (static_cast<int>(tickets_.size()) < limits_.max_steps_in_flight && scheduler_.schedule(plan_)) {
        tickets_.push_back(runner_.launch(plan_));
      }
      if (scheduler_idle()) continue;  // nothing but refused requests so far
      REQUIRE(!tickets_.empty());
      const StepResult result = runner_.collect(tickets_.front());
      tickets_.pop_front();
      for (const SequenceUpdate& update : scheduler_.update(result)) react(*update.sequence);
      scheduler_.audit();
    }
    REQUIRE(finished_ == num_sequences_);
    REQUIRE(scheduler_.blocks().num_used_blocks() == 0);
    num_preemptions_ = scheduler_.stats().num_preemptions;
    num_hit_tokens_ = scheduler_.stats().num_hit_tokens;
  }
  int64_t num_rewinds() const { return num_rewinds_; }
  int64_t num_preemptions() const { return num_preemptions_; }
  int64_t num_hit_tokens() const { return num_hit_tokens_; }

 private:
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  Ids random_ids(int64_t count) {
    Ids ids;
    for (; count > 0; --count) ids.push_back(static_cast<int32_t>(between(0, limits_.vocab_size - 1)));
    return ids;
  }

  RunnerLimits make_limits() {
    RunnerLimits limits;
    limits.max_model_len = 40;
    limits.max_num_seqs = between(1, 8);
    limits.max_num_batched_tokens = between(1, 32);
    limits.max_logits_rows = limits.max_num_seqs;
    limits.vocab_size = random_() % 2 == 0 ? 3 : 1000;
    limits.num_stages = random_() % 2 == 0 ? static_cast<int>(between(2, 4)) : 1;
    limits.max_steps_in_flight = limits.num_stages - 1 + static_cast<int>(between(1, 3));
    const int64_t common_block_size = between(1, 5);
    for (int64_t g = between(1, 3); g > 0; --g) {
      KvSpec spec{.block_size = random_() % 2 == 0 ? common_block_size : between(1, 5)};
      if (random_() % 3 == 0) {
        spec.kind = KvSpec::Kind::kSlidingWindow;
        spec.window = between(1, 9);
      } else if (random_() % 4 == 0) {
        spec.kind = KvSpec::Kind::kMla;
      }
      limits.kv_groups.push_back(spec);
      limits.num_blocks.push_back(random_() % 2 == 0 ? 39 / spec.block_size + 1
                                                     : (39 / spec.block_size + 1) * between(1, 3));
    }
    return limits;
  }

  SchedulerOptions make_options() {
    return {.enable_chunked_prefill = random_() % 3 != 0,
            .enable_prefix_caching = random_() % 4 != 0,
            .long_prefill_token_threshold = random_() % 3 == 0 ? between(1, 8) : 0,
            .max_num_partial_prefills = between(0, 3),
            .min_pipeline_tokens = between(1, 8),
            .first_length_guess = between(0, 20),
            .waiting_order = random_() % 2 == 0 ? WaitingOrder::kPrefix : WaitingOrder::kArrival,
            .watermark = random_() % 2 == 0 ? 0.0 : 0.1};
  }

  void add_request() {
    Ids tokens = random_() % 3 == 0
                     ? Ids{}
                     : openings_[static_cast<size_t>(between(0, static_cast<int64_t>(openings_.size()) - 1))];
    if (tokens.empty() || random_() % 2 == 0) {
      const Ids more = random_ids(between(1, 6));
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    const auto num_prompt_tokens = static_cast<int64_t>(tokens.size());
    const int64_t max_num_tokens = std::min(limits_.max_model_len, num_prompt_tokens + between(1, 20));
    if (scheduler_.refusal(num_prompt_tokens, max_num_tokens)) return;
    const std::string salt = random_() % 4 == 0 ? "salt" : "";
    const int64_t handle = num_requests_++;
    std::vector<std::unique_ptr<Sequence>> samples;
    for (int64_t i = random_() % 3 == 0 ? between(2, 4) : 1; i > 0; --i) {
      const auto index = static_cast<int>(samples.size());
      const SequenceSampling sampling{params_, static_cast<uint64_t>(index)};
      samples.push_back(std::make_unique<Sequence>(handle, std::make_shared<const Ids>(tokens), max_num_tokens,
                                                   sampling, SequenceOptions{index, {.cache_salt = salt}}));
      Ids& expected = expected_[{handle, index}] = tokens;
      while (static_cast<int64_t>(expected.size()) < max_num_tokens) {
        expected.push_back(model_.next(expected, sampling.key).token_id);
      }
      live_[{handle, index}] = samples.back().get();
      ++num_sequences_;
    }
    scheduler_.add(std::move(samples));
  }

  void react(Sequence& sequence) {
    if (sequence.status() != SequenceStatus::kRunning) return;  // ended, or preempted by a rewind, in this very loop
    const Ids& expected = expected_.at({sequence.handle(), sequence.sample_index()});
    const Ids& got = sequence.token_ids();
    REQUIRE(got.size() <= expected.size());
    REQUIRE(std::equal(got.begin(), got.end(), expected.begin()));
    if (num_rewinds_ < 30 && random_() % 4 == 0) {
      const int64_t complete = got.size() == expected.size() ? 1 : 0;  // a complete one would have nothing left to do
      scheduler_.rewind(sequence, between(complete, std::min<int64_t>(4, sequence.num_generated_tokens())));
      ++num_rewinds_;
    } else if (got.size() == expected.size() || random_() % 30 == 0) {
      end(sequence);
    } else if (random_() % 60 == 0) {
      end(*live_.begin()->second);  // whatever it is doing
    }
  }

  void end(Sequence& sequence) {
    live_.erase({sequence.handle(), sequence.sample_index()});
    scheduler_.finish(sequence, /*keep_cached=*/random_() % 3 != 0);
    ++finished_;
  }

  bool scheduler_idle() const {
    return scheduler_.num_running() + scheduler_.num_waiting() == 0 && scheduler_.num_steps_in_flight() == 0;
  }

  std::mt19937_64 random_;
  std::shared_ptr<const SamplingParams> params_ = std::make_shared<const SamplingParams>();
  RunnerLimits limits_;
  test::FakeModel model_;
  test::FakeRunner runner_;
  Scheduler scheduler_;
  StepPlan plan_;
  std::deque<Ticket> tickets_;
  std::vector<Ids> openings_;
  std::map<std::pair<int64_t, int>, Ids> expected_;
  std::map<std::pair<int64_t, int>, Sequence*> live_;
  int64_t num_requests_ = 0, num_sequences_ = 0, finished_ = 0;
  int64_t num_rewinds_ = 0, num_preemptions_ = 0, num_hit_tokens_ = 0;
};

TEST_CASE("tokens taken back, shared and computed again at random moments come out the same") {
  int64_t num_rewinds = 0, num_preemptions = 0, num_hit_tokens = 0;
  const int64_t share = test::kSanitized ? 10 : 1;  // of 4,000 jobs
  for (uint64_t seed = 0; seed < 4000 / static_cast<uint64_t>(share); ++seed) {
    CAPTURE(seed);
    RewindingJob job(seed);
    job.run();
    num_rewinds += job.num_rewinds();
    num_preemptions += job.num_preemptions();
    num_hit_tokens += job.num_hit_tokens();
  }
  MESSAGE("rewinds " << num_rewinds << ", preemptions " << num_preemptions << ", tokens hit " << num_hit_tokens);
  CHECK(num_rewinds > 10000 / share);
  CHECK(num_preemptions > 2000 / share);
  CHECK(num_hit_tokens > 10000 / share);
}

/// Answers every plan at once with token 7.
class InstantRunner {
 public:
  static StepResult answer(const StepPlan& plan) {
    StepResult result;
    result.step_id = plan.step_id;
    for (const ScheduledSlot& slot : plan.scheduled)
      result.slots.push_back({slot.slot, {{7, -1.0f, SampleStatus::kFine}}});
    return result;
  }
};

TEST_CASE("a decode step plans one token of every running sequence, however many wait, and says what it costs") {
  for (const int64_t num_seqs : {64, 1024}) {
    RunnerLimits limits;
    limits.kv_groups = {{.block_size = 16}};
    limits.num_blocks = {num_seqs * 70};
    limits.max_num_seqs = limits.max_logits_rows = num_seqs;
    limits.max_num_batched_tokens = num_seqs * 8;
    limits.max_model_len = 1100;
    limits.vocab_size = 1000;
    Scheduler scheduler(limits, {});
    const auto prompt = std::make_shared<const Ids>(8, 1);
    const auto params = std::make_shared<const SamplingParams>();
    for (int64_t i = 0; i < num_seqs + 10000; ++i) {  // 10,000 more wait
      scheduler.add(std::make_unique<Sequence>(i, prompt, 1024, SequenceSampling{params}));
    }
    StepPlan plan;
    REQUIRE(scheduler.schedule(plan));
    scheduler.update(InstantRunner::answer(plan));
    double schedule_s = 0, update_s = 0, serialize_s = 0;
    const int num_steps = 100;
    const auto now = [] { return std::chrono::steady_clock::now(); };
    for (int i = 0; i < num_steps; ++i) {
      const auto start = now();
      REQUIRE(scheduler.schedule(plan));
      const auto scheduled = now();
      REQUIRE(plan.scheduled.size() == static_cast<size_t>(num_seqs));
      REQUIRE(plan.num_tokens() == num_seqs);
      const size_t num_bytes = serialize(plan).size();
      const auto serialized = now();
      const StepResult result = InstantRunner::answer(plan);
      const auto answered = now();
      scheduler.update(result);
      update_s += std::chrono::duration<double>(now() - answered).count();
      schedule_s += std::chrono::duration<double>(scheduled - start).count();
      serialize_s += std::chrono::duration<double>(serialized - scheduled).count();
      REQUIRE(num_bytes > 0);
    }
    MESSAGE(num_seqs << " sequences: schedule " << schedule_s / num_steps * 1e6 << " us, update "
                     << update_s / num_steps * 1e6 << " us, serialize " << serialize_s / num_steps * 1e6 << " us");
  }
}

}  // namespace
}  // namespace tokenmill
