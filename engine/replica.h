#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "engine/runner.h"

namespace tokenmill {

/// Carries the bytes of plans from a replica's leader to its followers, in order and complete. Implemented over
/// parallel/host_channel; tests fake it.
class PlanChannel {
 public:
  virtual ~PlanChannel() = default;
  /// Leader: gives the bytes to every follower. They may be reused when it returns.
  virtual void send(std::span<const std::byte> bytes) = 0;
  /// Follower: waits for the next plan's bytes.
  virtual std::vector<std::byte> receive() = 0;
};

/// Carries the bytes of results from the last pipeline stage to the leader, in order and complete.
class ResultChannel {
 public:
  virtual ~ResultChannel() = default;
  /// The last stage's first rank. The bytes may be reused when it returns; it does not wait for the leader.
  virtual void send(std::span<const std::byte> bytes) = 0;
  /// Leader: waits for the next result's bytes.
  virtual std::vector<std::byte> receive() = 0;
};

/// What a leader's plans cost it, of all steps so far.
struct PlanTraffic {
  int64_t num_plans = 0;
  int64_t num_bytes = 0;  ///< of the plans; each goes to every follower
  double seconds = 0;     ///< making bytes of them and handing these over
};

/// The leader's runner in a replica of several ranks: what the scheduler launches goes to the followers first, then to
/// this rank's runner, so that all ranks of the replica execute the same steps. Not needed when the replica is one
/// rank.
class LeaderRunner final : public Runner {
 public:
  /// All outlive it. results: where the last stage is another rank (limits().num_stages > 1); else null, and this
  /// rank's runner gives the results.
  LeaderRunner(Runner& local, PlanChannel& channel, ResultChannel* results = nullptr);

  const RunnerLimits& limits() const override { return local_.limits(); }
  Ticket launch(const StepPlan& plan) override;
  StepResult collect(Ticket ticket) override;
  /// Sends the plan that ends the followers' loops. Once, after the last step; nothing may be launched after it. Not
  /// done by the destructor: a leader that leaves by an error ends the job another way.
  void stop();
  const PlanTraffic& traffic() const { return traffic_; }

 private:
  void send(const StepPlan& plan);
  /// Where a launched step's samples go, in the plan's order.
  struct Destination {
    int32_t slot;
    uint64_t occupant;
    int64_t position;
  };
  void release_slots(const StepPlan& plan);
  void remember(const StepPlan& plan);
  void pass_on(const StepResult& result);

  Runner& local_;
  PlanChannel& channel_;
  ResultChannel* results_;
  uint64_t last_step_id_ = 0;
  bool stopped_ = false;
  // With results_: samples that the other ranks learn with the next plan.
  std::vector<uint64_t> occupants_;  // by slot: counts the sequences that have left it
  std::deque<std::vector<Destination>> in_flight_;
  std::vector<SampledTokens> sampled_;
  StepPlan message_;
  PlanTraffic traffic_;
};

/// A follower's loop: launches every plan it receives on this rank's runner, with up to limits().max_steps_in_flight in
/// flight, until a plan says stop; collects all before it returns. results: on the rank that reports to the leader, the
/// last stage's first one, which then collects each step at once; else null. Throws Error(kInternal) on damaged bytes.
/// Returns the number of steps.
int64_t follow(Runner& local, PlanChannel& channel, ResultChannel* results = nullptr);

}  // namespace tokenmill
