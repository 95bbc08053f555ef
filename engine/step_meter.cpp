#include "engine/step_meter.h"

#include <utility>

#include "kernels/core/check.h"

namespace tokenmill {

StepMeter::StepMeter(const Clock& clock, Histogram& step_tokens, std::function<void(const StepRecord&)> on_step)
    : clock_(clock), step_tokens_(step_tokens), on_step_(std::move(on_step)) {}

void StepMeter::request_came(double now_s) {
  if (!starved_) return;
  starved_ = false;
  if (idle_since_s_) times_.starved_s += now_s - *idle_since_s_;
  idle_since_s_ = now_s;
}

void StepMeter::launching(const StepPlan& plan, const StepRecord& counts) {
  const double now_s = clock_.now_s();
  times_.schedule_s += now_s - mark_s_;
  StepRecord record = counts;
  record.step_id = plan.step_id;
  record.launched_s = now_s;
  record.num_tokens = plan.num_tokens();
  record.num_sequences = static_cast<int64_t>(plan.scheduled.size());
  record.num_logits_rows = plan.num_logits_rows();
  if (in_flight_.empty()) {
    if (idle_since_s_) record.host_wait_s = now_s - *idle_since_s_;
    times_.host_stall_s += record.host_wait_s;
    idle_since_s_.reset();
    busy_since_s_ = now_s;
  }
  starved_ = false;
  step_tokens_.add(static_cast<double>(record.num_tokens));
  in_flight_.push_back(record);
}

double StepMeter::collected(const StepResult& result) {
  TM_ASSERT(!in_flight_.empty() && in_flight_.front().step_id == result.step_id);
  const double now_s = clock_.now_s();
  StepRecord record = in_flight_.front();
  in_flight_.pop_front();
  record.device_s = now_s - record.launched_s;
  record.op_times = result.op_times;
  if (in_flight_.empty()) {
    times_.device_s += now_s - busy_since_s_;
    idle_since_s_ = now_s;
  }
  if (on_step_) on_step_(record);
  return mark_s_ = now_s;
}

void StepMeter::results_taken(bool has_work) {
  const double now_s = clock_.now_s();
  times_.text_s += now_s - mark_s_;
  if (has_work || !idle_since_s_) return;
  times_.host_stall_s += now_s - *idle_since_s_;
  idle_since_s_ = now_s;
  starved_ = true;
}

}  // namespace tokenmill
