#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "jobs/merge.h"
#include "parallel/mpi.h"

namespace tokenmill::jobs {

struct SharedMergeOptions {
  MergeOptions merge;
  /// Ranks write stretches of the file that begin and end at multiples of it: no two write one block of a parallel file
  /// system.
  int64_t alignment = int64_t{4} << 20;
  /// What rank 0 does meanwhile; then it writes no lines. Empty: it writes its share.
  std::function<void()> other_work = {};
};

/// Collective over comm: merge_parts() of lines, shared by the ranks. Each finds the bytes of an equal share of the
/// rows in the ledgers, all ranks' sum up to where each share begins, and each writes its stretch of one temporary
/// file, which rank 0 syncs and renames. parts, rows and output_path are rank 0's. Records must be lines and nothing
/// more. Throws the same AgreedError on every rank; the temporary is gone then. The totals are those of all, on every
/// rank.
MergeTotals merge_shared(const std::vector<PartPaths>& parts, RowRange rows, const std::string& output_path,
                         const parallel::Comm& comm, const SharedMergeOptions& options = {});

}  // namespace tokenmill::jobs
