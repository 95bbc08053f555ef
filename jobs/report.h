#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "jobs/commit.h"
#include "jobs/generator.h"
#include "jobs/progress.h"
#include "jobs/stop_level.h"
#include "parallel/mpi.h"

namespace tokenmill::jobs {

struct ReportValue;
/// Names and values in the order they are to appear.
using ReportSection = std::vector<std::pair<std::string, ReportValue>>;
/// A value app knows and the report shows; strings are written in double quotes, so that "1.10" and "true" stay
/// strings. A section inside a section stands on one line.
struct ReportValue : std::variant<bool, int64_t, double, std::string, std::vector<std::string>, ReportSection,
                                  std::vector<ReportSection>> {
  using variant::variant;
};

/// What one replica did.
struct ReplicaReport {
  int rank = 0;  ///< world rank of the leader
  std::string host;
  double run_s = 0;                 ///< from the common start to this replica's last row
  int64_t peak_resident_bytes = 0;  ///< of the whole process, start-up included
  ReplicaStatus status;
  JournalStats journal;
  std::string distributions = {};  ///< serialized
};

/// What came of a job; the same on every rank.
struct JobOutcome {
  int64_t rows = 0;
  int64_t failed = 0;  ///< rows whose record carries an error
  int64_t done = 0;    ///< rows that have a result
  int64_t saved = 0;   ///< of the others, so many were saved unfinished by this run
  RowsBefore before;   ///< of done and failed, what earlier runs did
  /// Set: the run stopped before output.jsonl was written; the same command goes on.
  StopCause stopped = StopCause::kNone;
  double index_s = 0, run_s = 0, merge_s = 0;
  double plan_s = 0;     ///< of index_s: ordering rows by how their prompts begin (rank 0's knowledge)
  double elapsed_s = 0;  ///< from the job's construction to the merged output, start-up between the two included
  std::vector<ReplicaReport> replicas;

  /// Counters of all replicas; the peak is the highest of them.
  GeneratorStats totals() const;
  /// Longest busy time over mean busy time; 1 is perfect, 0 without work.
  double dp_imbalance() const;
  /// From the first moment at which nothing was left to pull for a replica to the last row of the job.
  double tail_s() const;
  /// Of all replicas together.
  JobMetrics metrics() const;
};

/// Of this process so far.
int64_t peak_resident_bytes();

/// Six significant digits: enough to be useful, few enough to be read. NaN and infinity become 0.
double rounded(double value);

/// run.yaml: `sections` in their order (configuration, versions, ...), then inputs, rows, tokens, seconds, throughput,
/// kv_cache, distributions (engine/README.md, "Metrics") and a list of replicas. Times are seconds, rates per second of
/// run_s. Written atomically.
void write_run_report(const std::string& path, const std::vector<std::pair<std::string, ReportSection>>& sections,
                      const std::vector<std::string>& inputs, const JobOutcome& outcome);

/// Collective over world: the reports of all replicas, on every rank; leaders[r] is the world rank whose report is
/// replica r's.
std::vector<ReplicaReport> gather_reports(const parallel::Comm& world, const std::vector<int>& leaders,
                                          const ReplicaReport& mine);

}  // namespace tokenmill::jobs
