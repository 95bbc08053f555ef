#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "jobs/merge.h"
#include "parallel/mpi.h"

namespace tokenmill::jobs {

/// What is made of a job's results as several files. Both are given on every rank.
struct PartOutputs {
  /// Makes the outputs of one share of the rows; their names begin with stem ("DIR/output.parts.00002/00003").
  std::function<MergeOutputs(const std::string& stem)> make;
  /// On rank 0, when all shares are complete: makes one file of them, whose name is what says that there are results.
  std::function<void(const std::vector<std::string>& stems)> join;
};

/// Collective over comm: each rank writes the rows of an equal share to outputs of its own, in order of row, then rank
/// 0 joins them. directory: new, made by rank 0, whose parts, all (rows) and directory count. Throws the same
/// AgreedError on every rank. The totals are those of all, on every rank.
MergeTotals merge_in_parts(const std::vector<PartPaths>& parts, RowRange all, const std::string& directory,
                           const parallel::Comm& comm, const PartOutputs& outputs, const MergeOptions& options = {});

}  // namespace tokenmill::jobs
