#include "app/rank_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "app/checkpoint_digest.h"
#include "engine/models/random_weights.h"
#include "kernels/core/log.h"
#include "kernels/core/stopwatch.h"

namespace tokenmill::app {
namespace {

/// Takes over what another rank has packed, or another run.
void adopt(const WeightPlan& plan) {
  std::set<WeightSink*> sinks;
  for (const WeightPlan::Entry& entry : plan.entries) sinks.insert(entry.sink);
  for (WeightSink* sink : sinks) sink->adopt();
}

/// Collective over comm.
bool can_share_memory(const parallel::Comm& comm) {
  try {
    const parallel::SharedMemory probe(comm, 1);
    return true;
  } catch (const parallel::AgreedError& error) {
    if (comm.rank() == 0) log::warning("every rank of this node has weights of its own: {}", error.what());
    return false;
  }
}

/// Collective over node: the first of the ranks that are willing to write a file of this identity writes it.
bool is_first_writer(const parallel::Comm& node, bool is_willing, const std::string& identity) {
  const std::vector<std::string> all = parallel::gather_bytes(node, is_willing ? identity : "");
  return is_willing && std::find(all.begin(), all.end(), identity) - all.begin() == node.rank();
}

}  // namespace

parallel::Comm weight_sharers(const parallel::Groups& groups, const Ops& ops) {
  const parallel::GridPlace& place = groups.place;
  std::string key = fmt::format("stage {}, part {}, {}", place.pp_rank, place.tp_rank, ops.weight_layout());
  if (ops.device().kind != DeviceKind::kCpu || (groups.numa.size() > 1 && !can_share_memory(groups.numa)))
    key += fmt::format(", rank {}", groups.numa.rank());
  const std::vector<std::string> all = parallel::gather_bytes(groups.numa, key);
  const auto first = std::find(all.begin(), all.end(), key) - all.begin();
  return groups.numa.split(static_cast<int>(first), groups.numa.rank());
}

std::string weight_identity(const WeightBuilder& builder, const WeightCatalog& weights, const Ops& ops,
                            const std::string& cpu, const parallel::Comm& node, const parallel::Comm& world) {
  std::string checkpoint =
      parallel::agree_on(world, [&] { return node.rank() == 0 ? checkpoint_digest(weights) : std::string(); });
  parallel::broadcast_bytes(node, checkpoint, 0);
  return fmt::format("checkpoint {}\nlayout {} on {}\n{}", checkpoint, ops.weight_layout(), cpu, builder.describe());
}

std::span<std::byte> RankWeights::allocate(Ops& ops, const parallel::Comm& sharers, int64_t num_bytes) {
  if (sharers.size() > 1) {
    shared_ = parallel::SharedMemory(sharers, num_bytes);
    return shared_.bytes();
  }
  own_ = ops.memory().allocate(num_bytes);
  return {static_cast<std::byte*>(own_.data()), static_cast<size_t>(num_bytes)};
}

bool RankWeights::load_kept(const WeightLoadOptions& options, std::span<std::byte> storage) {
  if (options.cache.empty()) return false;
  const Stopwatch watch(cache_stats_.seconds);
  if (!WeightCache(options.cache).load(options.identity, storage)) return false;
  cache_stats_.bytes_read = static_cast<int64_t>(storage.size());
  return true;
}

void RankWeights::keep(const WeightLoadOptions& options, std::span<const std::byte> storage) {
  const Stopwatch watch(cache_stats_.seconds);
  if (WeightCache(options.cache).store(options.identity, storage))
    cache_stats_.bytes_written = static_cast<int64_t>(storage.size());
}

void RankWeights::load(WeightBuilder& builder, Ops& ops, const parallel::Comm& sharers, const parallel::Groups& groups,
                       const parallel::Comm& world, const WeightLoadOptions& options) {
  const bool packs = sharers.rank() == 0;
  const std::span<std::byte> storage =
      parallel::agree_on(world, [&] { return allocate(ops, sharers, std::max<int64_t>(1, builder.num_bytes())); });
  bool is_filled = !packs;
  const WeightPlan plan = parallel::agree_on(world, [&] {
    WeightPlan made = builder.place(storage);
    if (packs) is_filled = load_kept(options, storage);
    return made;
  });
  const WeightPlan missing = is_filled ? WeightPlan{} : plan;
  if (options.format == LoadFormat::kDummy) {
    parallel::agree_on(world, [&] { make_random_weights(missing, options.on_progress); });
  } else {
    stats_ = load_weights(missing, {.job = &world, .node = &groups.node},
                          {.mode = options.mode, .on_progress = options.on_progress});
  }
  parallel::agree_on(world, [&] {
    if (is_filled) adopt(plan);
  });
  if (options.cache.empty()) return;
  const bool writes = is_first_writer(groups.node, !is_filled, options.identity);
  parallel::agree_on(world, [&] {
    if (writes) keep(options, storage);
  });
}

}  // namespace tokenmill::app
