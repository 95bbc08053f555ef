#include "app/rank_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace tokenmill::app {
namespace {

/// Takes over what another rank has packed.
void adopt(const WeightPlan& plan) {
  std::set<WeightSink*> sinks;
  for (const WeightPlan::Entry& entry : plan.entries) sinks.insert(entry.sink);
  for (WeightSink* sink : sinks) sink->adopt();
}

}  // namespace

parallel::Comm weight_sharers(const parallel::Groups& groups, const Ops& ops) {
  const parallel::GridPlace& place = groups.place;
  std::string key = fmt::format("stage {}, part {}, {}", place.pp_rank, place.tp_rank, ops.weight_layout());
  if (ops.device().kind != DeviceKind::kCpu) key += fmt::format(", rank {}", groups.numa.rank());
  const std::vector<std::string> all = parallel::gather_bytes(groups.numa, key);
  const auto first = std::find(all.begin(), all.end(), key) - all.begin();
  return groups.numa.split(static_cast<int>(first), groups.numa.rank());
}

void RankWeights::load(WeightBuilder& builder, Ops& ops, const parallel::Comm& sharers, const parallel::Groups& groups,
                       const parallel::Comm& world, LoadMode mode) {
  const int64_t num_bytes = std::max<int64_t>(1, builder.num_bytes());
  std::span<std::byte> storage;
  parallel::agree_on(world, [&] {
    if (sharers.size() == 1) {
      own_ = ops.memory().allocate(num_bytes);
      storage = {static_cast<std::byte*>(own_.data()), static_cast<size_t>(num_bytes)};
    } else {
      shared_ = parallel::SharedMemory(sharers, num_bytes);
      storage = shared_.bytes();
    }
  });
  const WeightPlan plan = parallel::agree_on(world, [&] { return builder.place(storage); });
  const bool packs = sharers.rank() == 0;
  stats_ = load_weights(packs ? plan : WeightPlan{}, {.job = &world, .node = &groups.node}, {.mode = mode});
  parallel::agree_on(world, [&] {
    if (!packs) adopt(plan);
  });
}

}  // namespace tokenmill::app
