#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "jobs/index.h"
#include "jobs/journal/parts.h"
#include "jobs/ledger_blocks.h"
#include "parallel/mpi.h"

namespace tokenmill::jobs {

/// What rank 0 knows of a merge that ranks share.
struct MergeTask {
  std::vector<PartPaths> parts;
  int64_t num_rows = 0;
  std::string path;  ///< what is written
  LedgerBlocks blocks = {};
};

/// Collective over comm: rank 0 reads the ledgers' blocks and checks them; every rank gets its task. Throws the same
/// AgreedError on every rank.
MergeTask share_task(MergeTask task, const parallel::Comm& comm);

/// The rows of one of `count` equal shares.
RowRange share_of_rows(int64_t num_rows, int count, int index);

}  // namespace tokenmill::jobs
