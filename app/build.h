#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/agreement.h"
#include "app/model_choice.h"
#include "app/options.h"
#include "app/rank_plan.h"
#include "app/rank_weights.h"
#include "app/ranks.h"
#include "app/replica_channels.h"
#include "engine/model_runner.h"
#include "kernels/ops.h"
#include "parallel/connect.h"

namespace tokenmill::app {

/// One rank's part of a replica, in order of construction (members are destroyed in reverse).
struct Replica {
  std::unique_ptr<Ops> ops;
  ModelChoice choice;
  JobFacts facts;             ///< the same on all ranks
  std::vector<Range> stages;  ///< layers of each pipeline stage
  parallel::Comm weight_sharers;  ///< the ranks that have this rank's weights in common
  RankPlan plan;
  RankWeights weights;
  // What connects it with the other ranks of its replica; empty where there are none.
  parallel::HostProgress progress;
  parallel::Connection tp, pp;
  std::unique_ptr<ReplicaLink> link;
  std::unique_ptr<MpiPlanChannel> plans;
  std::unique_ptr<MpiResultChannel> results;  ///< on the leader and the last stage's first rank
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<LeaderRunner> leader;  ///< on the leader
  /// ("stage" where --stage-dir is given, "open", "measure", "plan", "load", "connect", "settle", "allocate", "record"
  /// within it) and the seconds each took; of "load" also what this rank spent on reading ("load_read"), packing
  /// ("load_pack") and waiting ("load_wait"), which overlap, and on --weight-cache ("load_cache"); of a job also reading
  /// its rows ("index") and all from its start to the results of the first step ("to_first_step").
  std::vector<std::pair<std::string, double>> startup_seconds;
  OpTimes op_times_at_start;  ///< of the device, before the first step

  /// Leader: what the engine runs its steps on.
  Runner& steps() { return leader ? static_cast<Runner&>(*leader) : *runner; }
  /// Leader, after the last step: lets the followers go.
  void stop_followers();
  /// Follower: executes the leader's steps until it is let go.
  void follow();
};

/// Warns about tensors that the model does not use: they may belong to a layer the configuration does not know of. A tied
/// head stored twice and stored rotary frequencies are expected.
void warn_of_unused_tensors(const WeightBuilder& builder, const ModelConfig& config);

/// Collective over world. Opens the model and plans this rank's memory; the ranks agree on what decides results, those
/// of a replica on the number of KV blocks. Everything that can be refused is refused here, on all ranks, before
/// weights are read.
std::unique_ptr<Replica> plan_replica(const RunOptions& options, const Ranks& ranks, const parallel::Comm& world);

/// Collective over world, after plan_replica(): loads the weights, makes the runner and what connects the ranks.
void load_replica(const RunOptions& options, Replica& replica, const Ranks& ranks, const parallel::Comm& world,
                  std::function<void()> on_progress = {});

}  // namespace tokenmill::app
