#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/record_writer.h"
#include "jobs/activity.h"
#include "jobs/commit.h"
#include "jobs/feed.h"
#include "jobs/generator.h"
#include "jobs/index.h"
#include "jobs/journal/partial_rows.h"
#include "jobs/merge_in_parts.h"
#include "jobs/output_dir.h"
#include "jobs/progress.h"
#include "jobs/report.h"
#include "jobs/row_plan.h"
#include "jobs/row_set.h"
#include "jobs/row_verdict.h"
#include "jobs/shard.h"
#include "jobs/stop_signals.h"
#include "jobs/walltime.h"
#include "parallel/mpi.h"

namespace tokenmill::jobs {

class Control;
struct ControlOptions;
struct RankState;
struct WatchdogOptions;

using MakeOutputs = std::function<MergeOutputs(const OutputDir&)>;

struct JobOptions {
  /// World rank of each replica's leader, by replica; the other ranks follow. Empty: every rank is a replica.
  std::vector<int> leaders;
  int replica = -1;                 ///< that this rank is part of; -1: the one it leads
  std::vector<std::string> inputs;  ///< in order; patterns are already expanded
  std::string output_dir;
  Shard shard;                 ///< which of the inputs' rows are the job's; output_dir is the shard's own
  bool restart = false;        ///< replace what an earlier run left in output_dir
  bool accept_change = false;  ///< continue a job that another identity began
  bool retry_errors = false;   ///< compute rows again whose result is an error
  /// What decides the results besides the inputs (Identity); rank 0's counts.
  Identity::Facts identity;
  std::vector<std::string> protected_paths;  ///< what else the run uses (model, job file, ...): never replaced
  io::RecordReaderOptions reader;
  /// Called on rank 0 only: before the inputs are indexed, with a scratch directory that lasts until on_indexed; with
  /// every record meanwhile (IndexOptions::on_record); after the last one. All or none may be empty.
  std::function<void(const std::string& scratch_dir)> on_indexing;
  std::function<void(int64_t row, std::string_view record)> on_record;
  std::function<void()> on_indexed;
  /// The part of a record that its prompt begins with, in the same pass: rows with equal beginnings are handed out
  /// together, before anything is tokenized, because they share KV blocks. Empty: rows keep their order.
  std::function<std::string_view(std::string_view record)> prefix_bytes;
  int64_t max_chunk_rows = 256;  ///< handed to a replica at a time
  int64_t busy_rows = 64;        ///< what a replica should always hold (CoordinatorOptions)
  int64_t queued_rows = 64;      ///< encoded and waiting on each replica; as many as the Generator may want at once
  /// Makes what the merge writes besides lines, on rank 0, committed in this order and before output.jsonl. Empty: nothing.
  MakeOutputs outputs = {};
  bool output_lines = true;      ///< the merge writes output.jsonl
  std::optional<PartOutputs> part_outputs = {};  ///< instead of both: files of all ranks
  std::string
      outputs_note;  ///< of app's, kept in the journal (OutputDir::outputs_path): what a later merge has to make
  bool has_attachments = false;  ///< some rows have one (FinishedRow)
  /// From so many bytes in the parts on all ranks write output.jsonl together, unless rows have attachments: how long
  /// their lines are is not in the ledgers.
  int64_t shared_merge_bytes = int64_t{256} << 20;
  double commit_s = 2;           ///< CommitOptions
  Durability durability = Durability::kDisk;
  double progress_s = 2;
  double metrics_s = 5;             ///< between calls of on_metrics
  MetricsCallback on_metrics = {};  ///< given on every rank, or on none; called on rank 0. May be empty
  double stall_s = 1800;            ///< WatchdogOptions
  std::function<std::string()> waits_in = {};  ///< WatchdogOptions
  WalltimeOptions walltime;         ///< rank 0's counts
  StopSignals* signals = nullptr;   ///< outlives the job; null: signals are none of its business
  /// Ends all ranks at once with the code of a job that can be continued; wanted with signals. Does not return.
  std::function<void()> end_now = {};
  Predecessor predecessor = Predecessor();  ///< of this run in output_dir; rank 0's counts
  double visible_within_s = 10;  ///< how long a rank looks for what rank 0 wrote in output_dir
};

/// What a job with these options does with its output directory: inputs and protected_paths are what it uses.
OutputUse output_use(const JobOptions& options);

/// One job, on every rank: its constructor does what can fail early (inputs, output directory, index), then replaces
/// earlier results or takes over what earlier runs of the job have done; run() does the other rows.
class Job {
 public:
  /// Collective over the session's world. Throws the same AgreedError on every rank: inputs that cannot be read, an
  /// output directory that holds another job's results, or things that are not tokenmill's, or is not shared by all
  /// ranks; earlier results are then still there. progress may be empty; it is called on rank 0 only.
  Job(const JobOptions& options, parallel::MpiSession& session, ProgressCallback progress = {});

  /// Of the job, or its shard.
  int64_t num_rows() const { return rows_.size(); }
  /// What earlier runs did, on every rank; rows that are tried again do not count.
  const RowsBefore& before() const { return before_; }
  const Index& index() const { return index_; }

  /// Collective, once: leaders call run(), the other ranks follow(). Pulls rows until there are none, then merges the
  /// parts to output.jsonl. Where it is to stop before (signals, walltime), what is unfinished is saved and nothing is
  /// merged (JobOutcome::stopped). An error on one rank, in whatever thread, ends the whole job through the session;
  /// one that all ranks agree on is thrown.
  JobOutcome run(const RowCodec& codec, Generator& generator);
  /// steps: what this rank does for its leader; returns when the leader's Generator::finish() lets it go.
  JobOutcome follow(const std::function<void()>& steps);
  /// Rank 0 writes run.yaml: what `sections` say (configuration, versions, machine), then the outcome. Collective.
  void write_report(const std::vector<std::pair<std::string, ReportSection>>& sections, const JobOutcome& outcome);

 private:
  JobOutcome run_share(const std::function<void(Control&, ReplicaReport&)>& share);
  void lead(const RowCodec& codec, Generator& generator, Control& control, ReplicaReport& report);
  ControlOptions control_options(ProgressTracker& tracker) const;
  WatchdogOptions watchdog_options(Control& control) const;
  int replica() const;
  void announce(JobPhase phase) const;
  void look_at_inputs();
  Index index_inputs(std::function<void()> on_progress);
  void read_journal();
  void share_what_is_done();
  void leave_other_shards();
  void check_inputs_unchanged() const;
  void watch_merge(int64_t num_failed);
  void merge(int64_t num_failed);
  void note_stall(int rank, const RankState& state) const;
  StopCause stop_cause(const JobOutcome& outcome, const Walltime& walltime) const;
  void handle_signals(StopLevel least, std::function<void(StopLevel)> rise = {}) const;
  int64_t part_bytes() const;
  MergeTotals merge_alone(const std::vector<PartPaths>& parts);
  MergeTotals merge_together(const std::vector<PartPaths>& parts);
  MergeTotals merge_into_parts(const std::vector<PartPaths>& parts);

  const JobOptions options_;
  parallel::MpiSession& session_;
  const ProgressCallback progress_;
  const OutputDir output_;
  OutputClaim claim_;
  const std::chrono::steady_clock::time_point start_;
  Identity identity_;  // on rank 0
  Index index_;
  RowRange rows_;  // of the index, which this job computes
  RowPlan plan_;  // on rank 0, until run(), as done_
  RowSet done_;
  PartialRows partial_;  // on every rank
  RowVerdict verdict_;                 // refused on every rank, suspects on rank 0
  std::vector<int> replicas_;          // by rank
  Activity activity_, feed_activity_;  // what the main thread and the feed do
  RowsBefore before_;
  double index_s_ = 0, plan_s_ = 0;
};

}  // namespace tokenmill::jobs
