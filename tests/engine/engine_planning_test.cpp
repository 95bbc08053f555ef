// What the order of waiting sequences is worth, counted on whole jobs through the engine.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "engine/engine.h"
#include "tests/support/fake_runner.h"

namespace tokenmill {
namespace {

constexpr int kGroups = 64;
constexpr int kRowsPerGroup = 16;
constexpr int kPrefixTokens = 512;
constexpr int kQuestionTokens = 32;
constexpr int kGeneratedTokens = 16;
constexpr int kVocabSize = 1000;
constexpr int kBlockSize = 16;

using Ids = std::vector<int32_t>;

Ids some_ids(std::mt19937_64& random, int count) {
  Ids ids;
  for (int i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(random() % kVocabSize));
  return ids;
}

/// Rows of all groups, shuffled.
std::vector<Request> shuffled_load() {
  std::mt19937_64 random(17);
  std::vector<Request> requests;
  for (int group = 0; group < kGroups; ++group) {
    const Ids prefix = some_ids(random, kPrefixTokens);
    for (int row = 0; row < kRowsPerGroup; ++row) {
      Request& request = requests.emplace_back();
      request.prompt_token_ids = prefix;
      const Ids question = some_ids(random, kQuestionTokens);
      request.prompt_token_ids.insert(request.prompt_token_ids.end(), question.begin(), question.end());
      request.sampling.temperature = 0;
      request.sampling.max_tokens = kGeneratedTokens;
      request.sampling.ignore_eos = true;
      request.random_key = random();
    }
  }
  std::shuffle(requests.begin(), requests.end(), random);
  for (size_t i = 0; i < requests.size(); ++i) requests[i].request_id = static_cast<int64_t>(i);
  return requests;
}

struct Outcome {
  EngineStats stats;
  std::map<int64_t, Ids> generated;  ///< by request
};

struct Setting {
  int64_t num_blocks = kGroups * kPrefixTokens / kBlockSize / 4;  ///< a quarter of the distinct prefixes
  int64_t max_num_seqs = 64;
  int steps_in_flight = 1;
  int64_t window = kGroups * kRowsPerGroup;  ///< requests in the engine
};

RunnerLimits limits_of(const Setting& setting) {
  RunnerLimits limits;
  limits.kv_groups = {{.block_size = kBlockSize}};
  limits.num_blocks = {setting.num_blocks};
  limits.max_num_seqs = setting.max_num_seqs;
  limits.max_num_batched_tokens = 2048;
  limits.max_logits_rows = setting.max_num_seqs;
  limits.max_steps_in_flight = setting.steps_in_flight;
  limits.max_model_len = 1024;
  limits.vocab_size = kVocabSize;
  return limits;
}

Outcome run(WaitingOrder order, const Setting& setting) {
  const RunnerLimits limits = limits_of(setting);
  test::FakeRunner runner({.kv_groups = limits.kv_groups, .vocab_size = kVocabSize, .seed = 5}, limits);
  Engine engine(runner, nullptr, {.scheduler = {.waiting_order = order}, .detokenize = false});
  Outcome outcome;
  const std::vector<Request> requests = shuffled_load();
  for (size_t next = 0; next < requests.size() || !engine.idle();) {
    for (; next < requests.size() && engine.num_unfinished() < setting.window; ++next) engine.submit(requests[next]);
    engine.step();
    for (RequestOutput& output : engine.take_finished()) {
      REQUIRE(!output.error);
      outcome.generated[output.request_id] = output.outputs.at(0).token_ids;
    }
  }
  REQUIRE(outcome.generated.size() == requests.size());
  outcome.stats = engine.stats();
  return outcome;
}

// Whole blocks of a prefix are computed once for its group, and all that lies behind the prefix once for each row:
//   groups * prefix + rows * question    when block_size divides prefix and no question begins like another.
constexpr int64_t kOptimum = int64_t{kGroups} * kPrefixTokens + int64_t{kGroups} * kRowsPerGroup * kQuestionTokens;

TEST_CASE("a shuffled load computes each shared prefix once, with room for a quarter of them; results do not change") {
  static_assert(kPrefixTokens % kBlockSize == 0);
  const Outcome arrival = run(WaitingOrder::kArrival, {});
  for (const int steps_in_flight : {1, 2, 3}) {
    CAPTURE(steps_in_flight);
    const Outcome planned = run(WaitingOrder::kPrefix, {.steps_in_flight = steps_in_flight});
    CHECK(planned.stats.num_computed_prompt_tokens == kOptimum);
    CHECK(planned.stats.num_preemptions == 0);
    CHECK(planned.generated == arrival.generated);
  }
  MESSAGE("computed prompt tokens: planned ", kOptimum, ", in order of arrival ",
          arrival.stats.num_computed_prompt_tokens);
  CHECK(arrival.stats.num_computed_prompt_tokens >= 3 * kOptimum);
}

TEST_CASE("the optimum holds for one sequence at a time and for as many as there are blocks") {
  for (const int64_t max_num_seqs : {1, 3, 16, 256}) {
    CAPTURE(max_num_seqs);
    const Outcome planned = run(WaitingOrder::kPrefix, {.max_num_seqs = max_num_seqs});
    CHECK(planned.stats.num_computed_prompt_tokens == kOptimum);
  }
  // Barely one group: a sequence of 559 computed tokens has 35 blocks, 3 of them its own.
  const Outcome tight = run(WaitingOrder::kPrefix, {.num_blocks = 60, .max_num_seqs = 64});
  CHECK(tight.stats.num_computed_prompt_tokens == kOptimum);
}

TEST_CASE("a window of a quarter of the job computes each prefix a few times, not once per row") {
  const Outcome windowed = run(WaitingOrder::kPrefix, {.window = kGroups * kRowsPerGroup / 4});
  MESSAGE("computed prompt tokens with a window of a quarter: ", windowed.stats.num_computed_prompt_tokens);
  CHECK(windowed.stats.num_computed_prompt_tokens >= kOptimum);
  CHECK(windowed.stats.num_computed_prompt_tokens <= 4 * kOptimum);
}

/// A runner that looks how the decodes of its steps stand: by the first block of their contexts, which rows that begin
/// alike share.
class NeighbourRunner : public Runner {
 public:
  explicit NeighbourRunner(test::FakeRunner& runner) : runner_(runner) {}
  const RunnerLimits& limits() const override { return runner_.limits(); }
  Ticket launch(const StepPlan& plan) override {
    for (const NewSlot& fresh : plan.new_slots) first_block_[fresh.slot] = fresh.block_ids[0][0];
    std::set<int32_t> beginnings;
    int32_t before = -1;
    for (const ScheduledSlot& scheduled : plan.scheduled) {
      if (scheduled.num_tokens != 1 || scheduled.start == 0) continue;
      const int32_t own = first_block_.at(scheduled.slot);
      num_stretches += own == before ? 0 : 1;
      beginnings.insert(before = own);
    }
    num_beginnings += static_cast<int64_t>(beginnings.size());
    return runner_.launch(plan);
  }
  StepResult collect(Ticket ticket) override { return runner_.collect(ticket); }

  int64_t num_stretches = 0;   ///< of decodes with one beginning, side by side, over all steps
  int64_t num_beginnings = 0;  ///< different ones among a step's decodes, over all steps

 private:
  test::FakeRunner& runner_;
  std::map<int32_t, int32_t> first_block_;  ///< by slot
};

TEST_CASE("rows that begin alike decode side by side") {
  const auto stretches_per_beginning = [](WaitingOrder order, int64_t num_blocks) {
    const RunnerLimits limits = limits_of({.num_blocks = num_blocks, .max_num_seqs = 128, .steps_in_flight = 2});
    test::FakeRunner fake({.kv_groups = limits.kv_groups, .vocab_size = kVocabSize, .seed = 5}, limits);
    NeighbourRunner runner(fake);
    Engine engine(runner, nullptr, {.scheduler = {.waiting_order = order}, .detokenize = false});
    std::mt19937_64 random(3);
    for (Request& request : shuffled_load()) {
      request.sampling.max_tokens = static_cast<int64_t>(1 + random() % 40);
      engine.submit(request);
    }
    while (!engine.idle()) engine.step();
    return static_cast<double>(runner.num_stretches) / static_cast<double>(runner.num_beginnings);
  };
  for (const int64_t num_blocks : {4096, 512}) {
    CAPTURE(num_blocks);
    CHECK(stretches_per_beginning(WaitingOrder::kPrefix, num_blocks) < 1.01);
  }
  CHECK(stretches_per_beginning(WaitingOrder::kArrival, 4096) > 2);
}

TEST_CASE("planning takes little time and is counted") {
  const Outcome planned = run(WaitingOrder::kPrefix, {});
  CHECK(planned.stats.plan_seconds > 0);
  MESSAGE("planning ", planned.stats.plan_seconds * 1e6 / (kGroups * kRowsPerGroup), " us per row");
}

}  // namespace
}  // namespace tokenmill
