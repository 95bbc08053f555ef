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
  RowRange rows;
  std::string path;  ///< what is written
  LedgerBlocks blocks = {};
};

/// Collective over comm: rank 0 reads the ledgers' blocks and checks them; every rank gets its task. Throws the same
/// AgreedError on every rank.
MergeTask share_task(MergeTask task, const parallel::Comm& comm);

/// One of `count` equal shares of rows.
RowRange share_of_rows(RowRange rows, int64_t count, int64_t index);

}  // namespace tokenmill::jobs
