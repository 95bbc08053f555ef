#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "app/build.h"
#include "app/ranks.h"
#include "engine/replica.h"
#include "jobs/report.h"
#include "parallel/communicator.h"

namespace tokenmill::app {

/// What one rank holds and has done since its replica was built.
struct RankFigures {
  parallel::GridPlace place;
  int64_t node = 0, local_rank = 0, num_threads = 0;
  Range layers;
  int64_t weight_bytes = 0, activation_bytes = 0, window_bytes = 0, kv_bytes = 0,
          peak_resident_bytes = 0;
  int64_t weight_sharers = 1;     ///< ranks that have one copy of these weights in common
  int64_t weight_bytes_read = 0;  ///< from the checkpoint
  int64_t cache_bytes_read = 0, cache_bytes_written = 0;  ///< --weight-cache
  double compute_s = 0;                 ///< its device computed
  double waited_s = 0;                  ///< its step loop waited for plans or results
  parallel::TransferCounts tp{}, pp{};  ///< zero in a group of one
  PlanTraffic plans;                    ///< of a leader
};

/// Of this rank.
RankFigures rank_figures(const RunOptions& options, const Replica& replica, const Ranks& ranks);

/// Where ranks hold different amounts: a line for each rank of the first replica. all: by world rank.
std::vector<std::string> describe_memory(const std::vector<RankFigures>& all);

/// What the steps of some replicas took, as their leaders count it.
struct StepTotals {
  double device_s = 0;  ///< some step was in flight, summed over replicas
  int64_t num_steps = 0;
};

/// "layout": sizes, and for every rank where it is, what it holds and how long it computed. all: by world rank.
jobs::ReportSection layout_section(const RunOptions& options, const Ranks& ranks, const std::vector<RankFigures>& all);

/// "loading": bytes of weights that came from the checkpoint's files and from --weight-cache, and went there, by all
/// ranks and for each node. all: by world rank.
jobs::ReportSection loading_section(const RunOptions& options, const Ranks& ranks, const std::vector<RankFigures>& all);

/// "communication": per kind of group and transfer, of all ranks together; what the plans cost the leaders; and with
/// pipeline stages pp_bubble_fraction, the share of the ranks' time with steps in flight that was neither computing nor
/// spent on the stage's own sums, beside pp_bubble_ideal, (p - 1) / (M + p - 1) for p stages and M steps a replica.
/// Empty in a job without replicas of several ranks.
jobs::ReportSection communication_section(const Ranks& ranks, const std::vector<RankFigures>& all,
                                          const StepTotals& steps);

}  // namespace tokenmill::app
