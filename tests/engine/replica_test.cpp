#include "engine/replica.h"

#include <doctest/doctest.h>

#include <deque>

#include "engine/engine.h"
#include "kernels/core/error.h"
#include "tests/support/fake_runner.h"

namespace tokenmill {
namespace {

/// Keeps what the leader sends for a follower that runs later.
class RecordedChannel final : public PlanChannel {
 public:
  void send(std::span<const std::byte> bytes) override { sent.emplace_back(bytes.begin(), bytes.end()); }
  std::vector<std::byte> receive() override {
    REQUIRE(!sent.empty());
    std::vector<std::byte> bytes = std::move(sent.front());
    sent.pop_front();
    return bytes;
  }
  std::deque<std::vector<std::byte>> sent;
};

/// Records every result it hands out.
class RecordingRunner final : public Runner {
 public:
  explicit RecordingRunner(Runner& inner) : inner_(inner) {}
  const RunnerLimits& limits() const override { return inner_.limits(); }
  Ticket launch(const StepPlan& plan) override { return inner_.launch(plan); }
  StepResult collect(Ticket ticket) override {
    StepResult result = inner_.collect(ticket);
    for (const StepResult::Slot& slot : result.slots) tokens.emplace_back(result.step_id, slot.tokens.front().token_id);
    return result;
  }
  std::vector<std::pair<uint64_t, int32_t>> tokens;

 private:
  Runner& inner_;
};

RunnerLimits limits_with(int max_steps_in_flight) {
  RunnerLimits limits;
  limits.kv_groups = {{.block_size = 16}};
  limits.num_blocks = {4};
  limits.max_num_seqs = 2;
  limits.max_num_batched_tokens = 6;
  limits.max_logits_rows = 2;
  limits.max_model_len = 32;
  limits.vocab_size = 50;
  limits.max_steps_in_flight = max_steps_in_flight;
  return limits;
}

TEST_CASE("a follower that replays the leader's plans computes what the leader computes") {
  for (int max_steps_in_flight = 1; max_steps_in_flight <= 3; ++max_steps_in_flight) {
    CAPTURE(max_steps_in_flight);
    const RunnerLimits limits = limits_with(max_steps_in_flight);
    const test::FakeModel model{limits.kv_groups, limits.vocab_size, 3, 0};
    RecordedChannel channel;
    test::FakeRunner leader_device(model, limits), follower_device(model, limits);
    RecordingRunner leader_results(leader_device), follower_results(follower_device);
    LeaderRunner leader(leader_results, channel);
    Engine engine(leader, nullptr, {.eos_token_ids = {1, 2, 3}, .detokenize = false});
    for (int i = 0; i < 6; ++i) engine.submit({.request_id = i, .prompt_token_ids = {4, 5, i, 7, 8, 9, 10, i}});
    while (engine.step()) {
    }
    leader.stop();
    CHECK(engine.take_finished().size() == 6);
    int64_t num_bytes = 0;
    for (const std::vector<std::byte>& plan : channel.sent) num_bytes += static_cast<int64_t>(plan.size());
    CHECK(leader.traffic().num_plans == leader_device.num_steps() + 1);
    CHECK(leader.traffic().num_bytes == num_bytes);
    CHECK(leader.traffic().seconds > 0);
    CHECK(follow(follower_results, channel) == leader_device.num_steps());
    CHECK(follower_device.num_steps_in_flight() == 0);
    CHECK(leader_results.tokens.size() > 6);
    CHECK(follower_results.tokens == leader_results.tokens);
    CHECK(channel.sent.empty());
  }
}

TEST_CASE("a follower refuses damaged plans and the leader launches nothing after the stop") {
  const RunnerLimits limits = limits_with(1);
  const test::FakeModel model{limits.kv_groups, limits.vocab_size, 3, 0};
  test::FakeRunner device(model, limits);
  RecordedChannel channel;
  channel.sent.push_back({std::byte{9}});
  CHECK_THROWS_WITH_AS(follow(device, channel), doctest::Contains("do all ranks run the same tokenmill?"), Error);
  LeaderRunner leader(device, channel);
  leader.stop();
  CHECK(channel.sent.size() == 1);
  CHECK(follow(device, channel) == 0);
  CHECK_THROWS_AS(leader.launch(StepPlan{}), Error);
}

}  // namespace
}  // namespace tokenmill
