#include "engine/replica.h"

#include <algorithm>
#include <utility>

#include "engine/step_plan.h"
#include "engine/step_result.h"
#include "kernels/core/check.h"
#include "kernels/core/clock.h"

namespace tokenmill {

LeaderRunner::LeaderRunner(Runner& local, PlanChannel& channel, ResultChannel* results)
    : local_(local),
      channel_(channel),
      results_(results),
      occupants_(results != nullptr ? static_cast<size_t>(local.limits().max_num_seqs) : 0) {
  TM_ASSERT((results != nullptr) == (local.limits().num_stages > 1), "{} pipeline stages", local.limits().num_stages);
}

/// Nobody needs the samples of sequences that have left.
void LeaderRunner::release_slots(const StepPlan& plan) {
  for (const auto* released : {&plan.finished, &plan.preempted}) {
    for (const int32_t slot : *released) {
      ++occupants_.at(static_cast<size_t>(slot));
      std::erase_if(sampled_, [&](const SampledTokens& tokens) { return tokens.slot == slot; });
    }
  }
}

void LeaderRunner::remember(const StepPlan& plan) {
  std::vector<Destination>& destinations = in_flight_.emplace_back();
  for (const ScheduledSlot& s : plan.scheduled) {
    if (!s.brings_results()) continue;
    const int64_t position = s.logits_rows.empty() ? -1 : s.start + s.logits_rows.front() + 1;
    destinations.push_back({s.slot, occupants_.at(static_cast<size_t>(s.slot)), position});
  }
}

Ticket LeaderRunner::launch(const StepPlan& plan) {
  TM_ASSERT(!stopped_ && !plan.stop, "step {} is launched after the last", plan.step_id);
  last_step_id_ = plan.step_id;
  if (results_ == nullptr) {
    send(plan);
    return local_.launch(plan);
  }
  release_slots(plan);
  remember(plan);
  message_ = plan;
  message_.sampled = std::exchange(sampled_, {});
  send(message_);
  return local_.launch(message_);
}

void LeaderRunner::send(const StepPlan& plan) {
  const SteadyClock clock;
  const double start_s = clock.now_s();
  const std::vector<std::byte> bytes = serialize(plan);
  channel_.send(bytes);
  traffic_.seconds += clock.now_s() - start_s;
  traffic_.num_bytes += static_cast<int64_t>(bytes.size());
  ++traffic_.num_plans;
}

void LeaderRunner::pass_on(const StepResult& result) {
  const std::vector<Destination> destinations = std::move(in_flight_.front());
  in_flight_.pop_front();
  TM_ASSERT(result.slots.size() == destinations.size(), "step {} gives results for {} slots; {} were planned",
            result.step_id, result.slots.size(), destinations.size());
  for (size_t i = 0; i < destinations.size(); ++i) {
    const Destination& to = destinations[i];
    const StepResult::Slot& from = result.slots[i];
    TM_ASSERT(from.slot == to.slot, "step {} gives results for slot {} in place of {}", result.step_id, from.slot,
              to.slot);
    if (from.tokens.empty() || occupants_[static_cast<size_t>(to.slot)] != to.occupant) continue;
    SampledTokens& tokens = sampled_.emplace_back(SampledTokens{to.slot, to.position, {}});
    for (const SampledToken& token : from.tokens) tokens.token_ids.push_back(token.token_id);
  }
}

StepResult LeaderRunner::collect(Ticket ticket) {
  StepResult local = local_.collect(ticket);
  if (results_ == nullptr) return local;
  const SteadyClock clock;
  const double start_s = clock.now_s();
  StepResult result = deserialize_step_result(results_->receive());
  local.op_times.host_s += clock.now_s() - start_s;
  TM_ASSERT(result.step_id == local.step_id, "the last stage reports step {}, the first one step {}", result.step_id,
            local.step_id);
  result.op_times = local.op_times;
  pass_on(result);
  return result;
}

void LeaderRunner::stop() {
  TM_ASSERT(!stopped_);
  stopped_ = true;
  StepPlan plan;
  plan.step_id = last_step_id_ + 1;
  plan.stop = true;
  send(plan);
}

int64_t follow(Runner& local, PlanChannel& channel, ResultChannel* results) {
  std::deque<Ticket> in_flight;
  const auto collect_oldest = [&] {
    const StepResult result = local.collect(in_flight.front());
    in_flight.pop_front();
    if (results != nullptr) results->send(serialize(result));
  };
  const auto most = static_cast<size_t>(results != nullptr ? 1 : local.limits().max_steps_in_flight);
  int64_t num_steps = 0;
  while (true) {
    const StepPlan plan = deserialize_step_plan(channel.receive());
    if (plan.stop) break;
    if (in_flight.size() == most) collect_oldest();
    in_flight.push_back(local.launch(plan));
    if (results != nullptr) collect_oldest();
    ++num_steps;
  }
  while (!in_flight.empty()) collect_oldest();
  return num_steps;
}

}  // namespace tokenmill
