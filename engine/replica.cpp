#include "engine/replica.h"

#include <deque>

#include "engine/step_plan.h"
#include "kernels/core/check.h"

namespace tokenmill {

Ticket LeaderRunner::launch(const StepPlan& plan) {
  TM_ASSERT(!stopped_ && !plan.stop, "step {} is launched after the last", plan.step_id);
  channel_.send(serialize(plan));
  last_step_id_ = plan.step_id;
  return local_.launch(plan);
}

void LeaderRunner::stop() {
  TM_ASSERT(!stopped_);
  stopped_ = true;
  StepPlan plan;
  plan.step_id = last_step_id_ + 1;
  plan.stop = true;
  channel_.send(serialize(plan));
}

int64_t follow(Runner& local, PlanChannel& channel) {
  std::deque<Ticket> in_flight;
  int64_t num_steps = 0;
  while (true) {
    const StepPlan plan = deserialize_step_plan(channel.receive());
    if (plan.stop) break;
    if (in_flight.size() == static_cast<size_t>(local.limits().max_steps_in_flight)) {
      local.collect(in_flight.front());
      in_flight.pop_front();
    }
    in_flight.push_back(local.launch(plan));
    ++num_steps;
  }
  for (const Ticket ticket : in_flight) local.collect(ticket);
  return num_steps;
}

}  // namespace tokenmill
