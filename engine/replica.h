#pragma once
#include <cstddef>
#include <cstdint>
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

/// The leader's runner in a replica of several ranks: what the scheduler launches goes to the followers first, then to
/// this rank's runner, so that all ranks of the replica execute the same steps. Not needed when the replica is one
/// rank.
class LeaderRunner final : public Runner {
 public:
  /// Both outlive it.
  LeaderRunner(Runner& local, PlanChannel& channel) : local_(local), channel_(channel) {}

  const RunnerLimits& limits() const override { return local_.limits(); }
  Ticket launch(const StepPlan& plan) override;
  StepResult collect(Ticket ticket) override { return local_.collect(ticket); }
  /// Sends the plan that ends the followers' loops. Once, after the last step; nothing may be launched after it. Not
  /// done by the destructor: a leader that leaves by an error ends the job another way.
  void stop();

 private:
  Runner& local_;
  PlanChannel& channel_;
  uint64_t last_step_id_ = 0;
  bool stopped_ = false;
};

/// A follower's loop: launches every plan it receives on this rank's runner, with up to limits().max_steps_in_flight in
/// flight, until a plan says stop; collects all before it returns. Throws Error(kInternal) on damaged bytes.
/// Returns the number of steps.
int64_t follow(Runner& local, PlanChannel& channel);

}  // namespace tokenmill
