#include "app/build.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "app/device_memory.h"
#include "app/layout.h"
#include "engine/models/layer_costs.h"
#include "kernels/core/clock.h"
#include "kernels/core/log.h"
#include "kernels/device_choice.h"
#include "parallel/measure_route.h"

namespace tokenmill::app {
namespace {

/// Adds what a part of the start took to the replica's list.
class Lap {
 public:
  Lap(Replica& replica, const char* name) : replica_(replica), name_(name), start_s_(clock_.now_s()) {}
  ~Lap() {
    const double elapsed_s = clock_.now_s() - start_s_;
    replica_.startup_seconds.emplace_back(name_, elapsed_s);
    log::debug("{} took {:.3f} s", name_, elapsed_s);
  }
  Lap(const Lap&) = delete;
  Lap& operator=(const Lap&) = delete;

 private:
  SteadyClock clock_;
  Replica& replica_;
  const char* name_;
  double start_s_;
};

/// Collective over world: what a token costs in a layer, and in the head on average, in steps as most of a job's are;
/// measured by rank 0 for all. Of one stage nothing needs to be known.
LayerCosts measured_costs(const RunOptions& options, Replica& replica, const parallel::Comm& world) {
  if (options.pipeline_parallel_size == 1) return {};
  constexpr int64_t kMostTokens = 64;
  const int64_t tokens = std::clamp<int64_t>(options.max_num_seqs / options.pipeline_parallel_size, 1, kMostTokens);
  LayerCosts costs;
  parallel::run_on_root(world, [&] {
    const Lap lap(replica, "measure");
    costs = measure_layer_costs(*replica.ops, replica.choice.checkpoint->config(), model_grid(options),
                                replica.choice.dtype, tokens);
    costs.head *= options.sampled_share;
  });
  return parallel::gather_values(world, costs)[0];
}

/// Collective over tp: from how many tokens on a step is computed in two turns (Decoder::overlap_from). What a turn
/// costs is the first rank's measurement, so that all decide alike. What costs more to measure comes last, where it
/// matters.
int64_t choose_overlap(const RankPlan& plan, Ops& ops, DType dtype, const parallel::Connection& connection,
                       const parallel::Comm& tp) {
  const ModelConfig& config = plan.model->config();
  const ModelGrid& grid = plan.shard.grid;
  const int64_t most = plan.limits.max_num_batched_tokens;
  TurnCosts turns;
  const auto from = [&] { return overlap_from(connection.costs, config, grid, turns, most); };
  if (from() > most) return most + 1;  // not even for nothing
  const int64_t tokens = std::max<int64_t>(from(), std::min<int64_t>(256, most));
  turns.hidden_share =
      parallel::measure_hidden_share(tp, *connection.communicator, sum_part_bytes(config, grid, tokens));
  if (from() > most) return most + 1;
  const double once_s = measure_layer_s(ops, config, grid, dtype, tokens);
  turns.token_s = once_s / static_cast<double>(tokens);
  turns.extra_s = std::max(0.0, 2 * measure_layer_s(ops, config, grid, dtype, tokens / 2) - once_s);
  return parallel::gather_values(tp, from())[0];
}

/// Collective over node: the ranks that name the same owner.
int count_sharers(const parallel::Comm& node, const std::string& owner) {
  const std::vector<std::string> all = parallel::gather_bytes(node, owner);
  return static_cast<int>(std::count(all.begin(), all.end(), owner));
}

/// Collective over the ranks of a replica: per KV group, what all of them have room for.
std::vector<int64_t> common_blocks(const parallel::Comm& replica, std::vector<int64_t> num_blocks) {
  const std::string mine(reinterpret_cast<const char*>(num_blocks.data()), num_blocks.size() * sizeof(int64_t));
  for (const std::string& bytes : parallel::gather_bytes(replica, mine)) {
    for (size_t group = 0; group < num_blocks.size(); ++group) {
      int64_t theirs = 0;
      std::memcpy(&theirs, bytes.data() + group * sizeof theirs, sizeof theirs);
      num_blocks[group] = std::min(num_blocks[group], theirs);
    }
  }
  return num_blocks;
}

std::vector<int64_t> sizes_of(const std::vector<StepGraphFigures::Size>& sizes) {
  std::vector<int64_t> out;
  for (const StepGraphFigures::Size& entry : sizes) out.push_back(entry.size);
  return out;
}

/// Collective over world. On a GPU: divides its memory again, with what the driver holds and will hold.
void settle_memory(const RunOptions& options, Replica& replica, const Ranks& ranks, const parallel::Comm& world) {
  if (replica.ops->device().kind != DeviceKind::kCuda) return;
  const Lap lap(replica, "settle");
  const int64_t driver_bytes = parallel::agree_on(world, [&] { return measure_driver_bytes(options, replica); });
  parallel::agree_on(world, [&] { plan_again(replica.plan, driver_bytes); });
  limit_blocks(replica.plan, common_blocks(ranks.groups.replica, replica.plan.memory.num_blocks));
}

/// On a GPU: as CUDA graphs. Collective over the ranks of a stage.
void record_steps(const RunOptions& options, Replica& replica) {
  if (replica.ops->device().kind != DeviceKind::kCuda || options.enforce_eager) return;
  const Lap lap(replica, "record");
  replica.runner->record_steps(options.max_cudagraph_capture_size);
  const StepGraphFigures figures = replica.runner->graph_figures();
  log::debug("CUDA graphs of {}, in {:.2f} s: layers of up to {} tokens, head of up to {} rows",
             format_bytes(figures.memory_bytes), figures.record_s, fmt::join(sizes_of(figures.layers), ", "),
             fmt::join(sizes_of(figures.heads), ", "));
}

/// Collective over the ranks of a replica, of which there are several.
void connect_ranks(Replica& replica, const Ranks& ranks) {
  const Lap lap(replica, "connect");
  const parallel::Groups& groups = ranks.groups;
  const auto connect = [&replica](const parallel::Comm& group) {
    return parallel::connect(group, replica.ops->device(), replica.ops->stream(), replica.progress);
  };
  if (groups.tp.size() > 1) {
    replica.tp = connect(groups.tp);
    replica.plan.model->overlap_from(
        choose_overlap(replica.plan, *replica.ops, replica.choice.dtype, replica.tp, groups.tp));
  }
  if (groups.pp.size() > 1) replica.pp = connect(groups.pp);
  replica.link = std::make_unique<ReplicaLink>(groups.replica, replica.progress);
  replica.plans = std::make_unique<MpiPlanChannel>(*replica.link);
  const bool reports = groups.place.pp_rank + 1 == groups.grid.pp && groups.place.tp_rank == 0;
  if (groups.grid.pp > 1 && (ranks.leads() || reports))
    replica.results = std::make_unique<MpiResultChannel>(*replica.link);
}

}  // namespace

void warn_of_unused_tensors(const WeightBuilder& builder, const ModelConfig& config) {
  std::vector<std::string> names = builder.unused();
  std::erase_if(names, [&](const std::string& name) {
    return name.ends_with("rotary_emb.inv_freq") || (config.tie_embeddings && name == "lm_head.weight");
  });
  if (names.empty()) return;
  log::warning("{} tensor{} of the checkpoint {} not used by this configuration, {} first; does config.json belong to these weights?",
               names.size(), names.size() == 1 ? "" : "s", names.size() == 1 ? "is" : "are", names.front());
}

std::unique_ptr<Replica> plan_replica(const RunOptions& options, const Ranks& ranks, const parallel::Comm& world) {
  auto replica = std::make_unique<Replica>();
  parallel::agree_on(world, [&] {
    const Lap lap(*replica, "open");
    const int local_rank = ranks.topology.ranks[static_cast<size_t>(world.rank())].local_rank;
    replica->ops = make_ops(choose_device_of(options, local_rank), ops_options_of(options, ranks.share.num_threads));
    replica->choice = choose_model(options, *replica->ops);
  });
  replica->facts =
      parallel::agree_on(world, [&] { return job_facts(options, replica->choice, replica->ops->numerics()); });
  agree_on_facts(replica->facts, world);
  const ModelConfig& config = replica->choice.checkpoint->config();
  replica->stages = stages_of(options, config, measured_costs(options, *replica, world));
  replica->weight_sharers = weight_sharers(ranks.groups, *replica->ops);
  const int ranks_on_device = count_sharers(
      ranks.groups.node, parallel::agree_on(world, [&] { return memory_owner(replica->ops->device()); }));
  parallel::agree_on(world, [&] {
    const Lap lap(*replica, "plan");
    RankShare share = ranks.share;
    share.ranks_on_device = ranks_on_device;
    share.weight_sharers = replica->weight_sharers.size();
    replica->plan = plan_rank(options, share, replica->choice, *replica->ops,
                              shard_at(options, ranks.groups.place, replica->stages));
  });
  if (world.rank() == 0) {
    warn_of_unused_tensors(*replica->plan.builder, config);
    const std::string crossing = describe_crossing(options, config, ranks.topology, ranks.groups.grid);
    if (!crossing.empty()) log::warning("{}", crossing);
  }
  limit_blocks(replica->plan, common_blocks(ranks.groups.replica, replica->plan.memory.num_blocks));
  return replica;
}

void load_replica(const RunOptions& options, Replica& replica, const Ranks& ranks, const parallel::Comm& world,
                  std::function<void()> on_progress) {
  const RankPlan& plan = replica.plan;
  {
    const Lap lap(replica, "load");
    WeightLoadOptions load{.mode = options.load,
                           .format = options.load_format,
                           .cache = options.weight_cache,
                           .on_progress = std::move(on_progress)};
    if (!load.cache.empty())
      load.identity = weight_identity(
          *plan.builder, replica.choice.checkpoint->weights(), *replica.ops,
          ranks.topology.ranks[static_cast<size_t>(world.rank())].cpu_place.model, ranks.groups.node, world);
    replica.weights.load(*plan.builder, *replica.ops, replica.weight_sharers, ranks.groups, world, load);
  }
  const LoadStats& loaded = replica.weights.stats();
  replica.startup_seconds.insert(replica.startup_seconds.end(), {{"load_read", loaded.read_s},
                                                                 {"load_pack", loaded.pack_s},
                                                                 {"load_wait", loaded.wait_s},
                                                                 {"load_cache", replica.weights.cache_stats().seconds}});
  log::debug("read {} of weights, {} on this node", format_bytes(loaded.bytes_read),
             format_bytes(loaded.node_bytes_read));
  if (ranks.groups.replica.size() > 1) connect_ranks(replica, ranks);
  settle_memory(options, replica, ranks, world);
  parallel::agree_on(world, [&] {
    const Lap lap(replica, "allocate");
    replica.runner = std::make_unique<ModelRunner>(
        *replica.ops, *plan.model, replica.choice.dtype, plan.limits,
        ReplicaGroups{.tp = replica.tp.communicator.get(), .pp = replica.pp.communicator.get()});
    record_steps(options, replica);
    if (replica.plans && ranks.leads())
      replica.leader = std::make_unique<LeaderRunner>(*replica.runner, *replica.plans, replica.results.get());
    replica.op_times_at_start = replica.ops->op_times();
  });
}

void Replica::stop_followers() {
  if (!leader) return;
  leader->stop();
  link->flush();
}

void Replica::follow() {
  tokenmill::follow(*runner, *plans, results.get());
  link->flush();
}

}  // namespace tokenmill::app
