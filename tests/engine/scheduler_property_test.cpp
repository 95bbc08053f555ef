// Random jobs through the scheduler alone, with rewinds at random moments: the mechanism of speculation and of samples
// that are taken back. A sequence's tokens must be those of one-at-a-time execution whatever is taken back and when.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <random>

#include "engine/scheduler.h"
#include "tests/support/fake_runner.h"

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
        scheduler_(limits_, {.enable_chunked_prefill = random_() % 3 != 0}) {}

  void run() {
    add_sequences();
    for (int step = 0; !scheduler_idle(); ++step) {
      REQUIRE(step < 5000);
      while (static_cast<int>(tickets_.size()) < limits_.max_steps_in_flight && scheduler_.schedule(plan_)) {
        tickets_.push_back(runner_.launch(plan_));
      }
      REQUIRE(!tickets_.empty());
      const StepResult result = runner_.collect(tickets_.front());
      tickets_.pop_front();
      for (const SequenceUpdate& update : scheduler_.update(result)) react(*update.sequence);
    }
    REQUIRE(finished_ == expected_.size());
    REQUIRE(scheduler_.blocks().num_used_blocks() == 0);
  }
  int64_t num_rewinds() const { return num_rewinds_; }

 private:
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  RunnerLimits make_limits() {
    RunnerLimits limits;
    limits.max_model_len = 40;
    limits.max_num_seqs = between(1, 8);
    limits.max_num_batched_tokens = between(1, 32);
    limits.max_logits_rows = limits.max_num_seqs;
    limits.vocab_size = 1000;
    limits.max_steps_in_flight = static_cast<int>(between(1, 3));
    for (int64_t g = between(1, 2); g > 0; --g) {
      const int64_t block_size = between(1, 5);
      limits.kv_groups.push_back({.block_size = block_size});
      limits.num_blocks.push_back((40 / block_size + 1) * between(1, 3));
    }
    return limits;
  }

  void add_sequences() {
    for (int64_t handle = between(1, 8); handle > 0; --handle) {
      Ids tokens;
      for (int64_t i = between(1, 20); i > 0; --i) tokens.push_back(static_cast<int32_t>(between(0, 999)));
      const int64_t max_num_tokens = static_cast<int64_t>(tokens.size()) + between(1, 20);
      if (scheduler_.refusal(static_cast<int64_t>(tokens.size()), max_num_tokens)) continue;
      scheduler_.add(std::make_unique<Sequence>(handle, tokens, max_num_tokens, SlotSampling{.key = 3}));
      while (static_cast<int64_t>(tokens.size()) < max_num_tokens) tokens.push_back(model_.next(tokens, 3).token_id);
      expected_[handle] = tokens;
    }
  }

  void react(Sequence& sequence) {
    const Ids& expected = expected_.at(sequence.handle());
    const Ids& got = sequence.token_ids();
    REQUIRE(got.size() <= expected.size());
    REQUIRE(std::equal(got.begin(), got.end(), expected.begin()));
    if (num_rewinds_ < 30 && random_() % 4 == 0) {
      const int64_t complete = got.size() == expected.size() ? 1 : 0;  // a complete one would have nothing left to do
      scheduler_.rewind(sequence, between(complete, std::min<int64_t>(4, sequence.num_generated_tokens())));
      ++num_rewinds_;
    } else if (got.size() == expected.size() || random_() % 30 == 0) {
      scheduler_.finish(sequence);
      ++finished_;
    }
  }

  bool scheduler_idle() const {
    return scheduler_.num_running() + scheduler_.num_waiting() == 0 && scheduler_.num_steps_in_flight() == 0;
  }

  std::mt19937_64 random_;
  RunnerLimits limits_;
  test::FakeModel model_;
  test::FakeRunner runner_;
  Scheduler scheduler_;
  StepPlan plan_;
  std::deque<Ticket> tickets_;
  std::map<int64_t, Ids> expected_;
  size_t finished_ = 0;
  int64_t num_rewinds_ = 0;
};

TEST_CASE("tokens taken back at random moments come out the same again") {
  int64_t num_rewinds = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    RewindingJob job(seed);
    job.run();
    num_rewinds += job.num_rewinds();
  }
  CHECK(num_rewinds > 10000);
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

// A figure, not a check: test_engine -tc="*cost of a decode step*" -ns
TEST_CASE("cost of a decode step of the scheduler" * doctest::skip()) {
  for (const int64_t num_seqs : {64, 1024}) {
    RunnerLimits limits;
    limits.kv_groups = {{.block_size = 16}};
    limits.num_blocks = {num_seqs * 70};
    limits.max_num_seqs = limits.max_logits_rows = num_seqs;
    limits.max_num_batched_tokens = num_seqs * 8;
    limits.max_model_len = 1100;
    limits.vocab_size = 1000;
    Scheduler scheduler(limits, {});
    for (int64_t i = 0; i < num_seqs + 10000; ++i) {  // 10,000 more wait
      scheduler.add(std::make_unique<Sequence>(i, Ids(8, 1), 1024, SlotSampling{}));
    }
    StepPlan plan;
    REQUIRE(scheduler.schedule(plan));
    scheduler.update(InstantRunner::answer(plan));
    double schedule_s = 0, update_s = 0, serialize_s = 0;
    const int num_steps = 1000;
    const auto now = [] { return std::chrono::steady_clock::now(); };
    for (int i = 0; i < num_steps; ++i) {
      const auto start = now();
      REQUIRE(scheduler.schedule(plan));
      const auto scheduled = now();
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
