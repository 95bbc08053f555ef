#include "app/ranks.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/core/log.h"
#include "kernels/cpu/isa.h"

namespace tokenmill::app {

namespace {

/// Ranks that lay different grids would wait for each other in groups that the others do not know.
void agree_on_grid(const parallel::Grid& mine, const parallel::Comm& world) {
  const parallel::Grid first = parallel::gather_values(world, mine)[0];
  parallel::agree_on(world, [&] {
    if (mine == first) return;
    throw Error(
        ErrorKind::kConfig,
        "this rank was started for dp {} x pp {} x tp {}, rank 0 for dp {} x pp {} x tp {}; start every rank with "
        "the same command",
        mine.dp, mine.pp, mine.tp, first.dp, first.pp, first.tp);
  });
}

/// Of more than the rank has CPUs, or time on them.
void warn_of_threads(int64_t num_threads, const parallel::RankPlace& place) {
  const int cores = place.cpus.count();
  const char* const remedy = "leave the option out to use this rank's share of the cores";
  if (num_threads > cores)
    log::warning("--threads {} on {} core{}: threads that share a core wait for each other; {}", num_threads, cores,
                 cores == 1 ? "" : "s", remedy);
  else if (place.cpu_limit && static_cast<double>(num_threads) > *place.cpu_limit)
    log::warning("--threads {}, but the control group gives this rank the time of {:.1f} cores: all would stop together "
                 "when it is used up; {}",
                 num_threads, *place.cpu_limit, remedy);
}

}  // namespace

Ranks join_ranks(const RunOptions& options, const parallel::Comm& world) {
  if (world.rank() != 0)
    log::configure(std::max(chosen_log_level(options), log::Level::kWarning), parallel::world_place() + ": ");
  Ranks ranks;
  ranks.world_rank = world.rank();
  ranks.topology = parallel::gather_topology(world);
  const parallel::RankPlace& place = ranks.topology.ranks[static_cast<size_t>(world.rank())];
  const parallel::Grid grid = parallel::resolve_grid(asked_grid(options), world.size());
  agree_on_grid(grid, world);
  ranks.share = share_of(ranks.topology, parallel::lay_grid(ranks.topology, grid), world.rank());
  ranks.groups = parallel::make_groups(world, ranks.topology, grid);
  if (world.rank() == 0 && options.threads) warn_of_threads(*options.threads, place);
  log::debug("rank {}: node {} ({}), local rank {}, cores {}, {} threads", world.rank(), place.node, place.host,
             place.local_rank, place.cpus.describe(), place.num_threads);
  return ranks;
}

std::string common_cpu_isa(const RunOptions& options, const parallel::Comm& world) {
  if (options.cpu_isa != "auto") return options.cpu_isa;
  const std::vector<cpu::Isa> mine = cpu::available_isas();
  size_t common = mine.size();  // each list is a beginning of the longest one
  for (const std::string& count : parallel::gather_bytes(world, std::to_string(mine.size())))
    common = std::min<size_t>(common, std::stoul(count));
  if (common < mine.size())
    log::debug("cpu-isa {} instead of {}: another rank's CPU has no more", to_string(mine[common - 1]),
               to_string(mine.back()));
  return to_string(mine[common - 1]);
}

}  // namespace tokenmill::app
