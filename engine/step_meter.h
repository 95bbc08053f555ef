#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "engine/runner.h"
#include "kernels/core/clock.h"
#include "kernels/core/histogram.h"

namespace tokenmill {

/// One step, for the iteration log. Seconds on the engine's clock.
struct StepRecord {
  uint64_t step_id = 0;
  double launched_s = 0;   ///< when the runner took the plan over
  double device_s = 0;     ///< from there until its results were there
  double host_wait_s = 0;  ///< before that the device had nothing to do and this work was known
  int64_t num_tokens = 0, num_prompt_tokens = 0, num_sequences = 0, num_logits_rows = 0;
  int64_t num_used_blocks = 0;
  int64_t num_running = 0, num_waiting = 0;  ///< sequences, when it was planned
  OpTimes op_times;  ///< of device_s
};

/// Where a replica's wall time goes, since its first request; seconds.
struct StepTimes {
  double device_s = 0;      ///< a step was in flight
  double host_stall_s = 0;  ///< no step was in flight, and there was a row to go on with
  double starved_s = 0;     ///< no step was in flight, and there was no row
  double text_s = 0;      ///< host work: sampled tokens into text, stop strings, finished rows (in host_stall_s unless
                          ///< another step was in flight)
  double schedule_s = 0;  ///< host work: making plans (the same)
};

/// Takes the times of the engine's loop: what the device waits for, and what each step took. Costs a few readings of
/// the clock per step.
class StepMeter {
 public:
  /// step_tokens counts the tokens of each step and outlives the meter, as the clock does. on_step gets every collected
  /// step, in order; it may be empty.
  StepMeter(const Clock& clock, Histogram& step_tokens, std::function<void(const StepRecord&)> on_step);

  /// A request is taken in.
  void request_came(double now_s);
  void begin_schedule() { mark_s_ = clock_.now_s(); }
  /// Nothing could be scheduled.
  void end_schedule() { times_.schedule_s += clock_.now_s() - mark_s_; }
  /// A plan goes to the runner; ends the schedule that made it. counts: what the plan does not say (prompt tokens, used
  /// blocks, running and waiting sequences).
  void launching(const StepPlan& plan, const StepRecord& counts);
  /// The oldest step's results are there. Returns the time.
  double collected(const StepResult& result);
  /// They have been dealt with. has_work: a sequence waits or runs.
  void results_taken(bool has_work);

  const StepTimes& times() const { return times_; }

 private:
  const Clock& clock_;
  Histogram& step_tokens_;
  std::function<void(const StepRecord&)> on_step_;
  std::deque<StepRecord> in_flight_;  // oldest first
  StepTimes times_;
  double mark_s_ = 0;                   // where schedule or text work began
  std::optional<double> idle_since_s_;  // nothing in flight since; empty before the first request too
  double busy_since_s_ = 0;             // something in flight since
  bool starved_ = true;                 // idle, and no row to go on with
};

}  // namespace tokenmill
