#include "app/rank_figures.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/layout.h"
#include "app/rank_map.h"

namespace tokenmill::app {
namespace {

using jobs::ReportSection;
using jobs::rounded;
using parallel::TransferCount;
using parallel::TransferCounts;

TransferCounts counts_of(const parallel::Connection& connection) {
  return connection.communicator ? connection.communicator->counts() : TransferCounts{};
}

void add(TransferCounts& sum, const TransferCounts& counts) {
  for (size_t kind = 0; kind < counts.size(); ++kind) {
    sum[kind].calls += counts[kind].calls;
    sum[kind].sent_bytes += counts[kind].sent_bytes;
    sum[kind].received_bytes += counts[kind].received_bytes;
    sum[kind].exposed_s += counts[kind].exposed_s;
    sum[kind].hidden_s += counts[kind].hidden_s;
  }
}

double exposed_s(const TransferCounts& counts) {
  double sum = 0;
  for (const TransferCount& count : counts) sum += count.exposed_s;
  return sum;
}

/// A line per kind that occurred.
ReportSection transfers(const TransferCounts& counts) {
  ReportSection out;
  for (size_t kind = 0; kind < counts.size(); ++kind) {
    const TransferCount& count = counts[kind];
    if (count.calls == 0) continue;
    out.emplace_back(to_string(static_cast<parallel::TransferKind>(kind)),
                     ReportSection{{"calls", count.calls},
                                   {"sent_bytes", count.sent_bytes},
                                   {"received_bytes", count.received_bytes},
                                   {"exposed_s", rounded(count.exposed_s)},
                                   {"hidden_s", rounded(count.hidden_s)}});
  }
  return out;
}

/// The share of all ranks' time with steps in flight in which they had to wait for other stages.
double bubble_fraction(const Ranks& ranks, const std::vector<RankFigures>& all, const StepTotals& steps) {
  double busy_s = 0;
  for (const RankFigures& rank : all) busy_s += rank.compute_s + exposed_s(rank.tp);
  const double there_s = steps.device_s * ranks.groups.grid.pp * ranks.groups.grid.tp;
  return there_s > 0 ? std::clamp(1 - busy_s / there_s, 0.0, 1.0) : 0;
}

}  // namespace

RankFigures rank_figures(const RunOptions& options, const Replica& replica, const Ranks& ranks) {
  const auto rank = static_cast<size_t>(ranks.world_rank);
  const parallel::RankPlace& place = ranks.topology.ranks.at(rank);
  const MemoryPlan& memory = replica.plan.memory;
  return {.place = ranks.groups.place,
          .node = place.node,
          .local_rank = place.local_rank,
          .num_threads = options.threads.value_or(place.num_threads),
          .layers = replica.plan.shard.layers,
          .weight_bytes = memory.weight_bytes,
          .activation_bytes = memory.activation_bytes,
          .window_bytes = memory.window_bytes,
          .kv_bytes = memory.kv_bytes,
          .peak_resident_bytes = jobs::peak_resident_bytes(),
          .weight_sharers = memory.weight_sharers,
          .weight_bytes_read = replica.weights.stats().bytes_read,
          .cache_bytes_read = replica.weights.cache_stats().bytes_read,
          .cache_bytes_written = replica.weights.cache_stats().bytes_written,
          .compute_s = (replica.ops->op_times() - replica.op_times_at_start).compute_s(),
          .waited_s = replica.link ? replica.link->waited_s() : 0,
          .tp = counts_of(replica.tp),
          .pp = counts_of(replica.pp),
          .plans = replica.leader ? replica.leader->traffic() : PlanTraffic{}};
}

std::vector<std::string> describe_memory(const std::vector<RankFigures>& all) {
  std::vector<std::string> lines;
  bool all_equal = true;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const RankFigures& r = all[rank];
    if (r.place.dp_rank != 0) continue;
    all_equal = all_equal && r.weight_bytes == all[0].weight_bytes && r.activation_bytes == all[0].activation_bytes &&
                r.window_bytes == all[0].window_bytes && r.kv_bytes == all[0].kv_bytes;
    lines.push_back(fmt::format("rank {}: {}: weights {}, activations {}{}, KV {}", rank, describe_layers(r.layers),
                                format_bytes(r.weight_bytes), format_bytes(r.activation_bytes),
                                describe_windows(r.window_bytes), format_bytes(r.kv_bytes)));
  }
  return all_equal ? std::vector<std::string>{} : lines;
}

ReportSection layout_section(const RunOptions& options, const Ranks& ranks, const std::vector<RankFigures>& all) {
  std::vector<ReportSection> list;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const RankFigures& figures = all[rank];
    list.push_back({{"rank", static_cast<int64_t>(rank)},
                    {"host", ranks.topology.ranks[rank].host},
                    {"node", figures.node},
                    {"local_rank", figures.local_rank},
                    {"dp_rank", int64_t{figures.place.dp_rank}},
                    {"pp_rank", int64_t{figures.place.pp_rank}},
                    {"tp_rank", int64_t{figures.place.tp_rank}},
                    {"threads", figures.num_threads},
                    {"first_layer", figures.layers.begin},
                    {"num_layers", figures.layers.size()},
                    {"weight_bytes", figures.weight_bytes},
                    {"weight_sharers", figures.weight_sharers},
                    {"weight_bytes_read", figures.weight_bytes_read},
                    {"activation_bytes", figures.activation_bytes},
                    {"window_bytes", figures.window_bytes},
                    {"kv_bytes", figures.kv_bytes},
                    {"peak_resident_bytes", figures.peak_resident_bytes},
                    {"compute_s", rounded(figures.compute_s)},
                    {"waited_s", rounded(figures.waited_s)}});
  }
  const parallel::Grid& grid = ranks.groups.grid;
  return {{"data_parallel_size", int64_t{grid.dp}},
          {"pipeline_parallel_size", int64_t{grid.pp}},
          {"tensor_parallel_size", int64_t{grid.tp}},
          {"tp_invariant", options.tp_invariant},
          {"ranks", std::move(list)}};
}

ReportSection loading_section(const RunOptions& options, const Ranks& ranks, const std::vector<RankFigures>& all) {
  struct Bytes {
    std::string host;
    int64_t read = 0, cache_read = 0, cache_written = 0;
    void add(const RankFigures& rank) {
      read += rank.weight_bytes_read;
      cache_read += rank.cache_bytes_read;
      cache_written += rank.cache_bytes_written;
    }
    void list_in(ReportSection& section) const {
      section.insert(section.end(), {{"bytes_read", read},
                                     {"cache_bytes_read", cache_read},
                                     {"cache_bytes_written", cache_written}});
    }
  };
  Bytes job;
  std::vector<Bytes> nodes(static_cast<size_t>(ranks.topology.num_nodes));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    job.add(all[rank]);
    Bytes& node = nodes[static_cast<size_t>(all[rank].node)];
    node.add(all[rank]);
    node.host = ranks.topology.ranks[rank].host;
  }
  ReportSection out{{"load", std::string(options.load == LoadMode::kBroadcast ? "broadcast" : "node")}};
  job.list_in(out);
  std::vector<ReportSection> list;
  for (size_t node = 0; node < nodes.size(); ++node) {
    list.push_back({{"node", static_cast<int64_t>(node)}, {"host", nodes[node].host}});
    nodes[node].list_in(list.back());
  }
  out.emplace_back("nodes", std::move(list));
  return out;
}

ReportSection communication_section(const Ranks& ranks, const std::vector<RankFigures>& all, const StepTotals& steps) {
  const parallel::Grid& grid = ranks.groups.grid;
  if (grid.tp * grid.pp == 1) return {};
  TransferCounts tp{}, pp{};
  PlanTraffic plans;
  for (const RankFigures& rank : all) {
    add(tp, rank.tp);
    add(pp, rank.pp);
    plans.num_plans += rank.plans.num_plans;
    plans.num_bytes += rank.plans.num_bytes;
    plans.seconds += rank.plans.seconds;
  }
  ReportSection out;
  if (grid.tp > 1) out.emplace_back("tensor_parallel", transfers(tp));
  if (grid.pp > 1) out.emplace_back("pipeline_parallel", transfers(pp));
  const auto num_plans = static_cast<double>(std::max<int64_t>(1, plans.num_plans));
  out.emplace_back("step_plans",
                   ReportSection{{"plans", plans.num_plans},
                                 {"bytes", plans.num_bytes},
                                 {"bytes_per_step", rounded(static_cast<double>(plans.num_bytes) / num_plans)},
                                 {"seconds", rounded(plans.seconds)},
                                 {"seconds_per_step", rounded(plans.seconds / num_plans)}});
  if (grid.pp == 1) return out;
  const double waits = grid.pp - 1, per_replica = static_cast<double>(steps.num_steps) / grid.dp;
  out.emplace_back("pp_bubble_fraction", rounded(bubble_fraction(ranks, all, steps)));
  out.emplace_back("pp_bubble_ideal", rounded(waits / (per_replica + waits)));
  return out;
}

}  // namespace tokenmill::app
