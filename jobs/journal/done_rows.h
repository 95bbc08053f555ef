#pragma once
#include <cstdint>
#include <vector>

#include "jobs/journal/partial_rows.h"
#include "jobs/journal/parts.h"
#include "jobs/row_set.h"

namespace tokenmill::jobs {

/// What the runs so far have come to.
struct DoneRows {
  RowSet done;    ///< rows with a result
  RowSet failed;  ///< those of them whose result is an error
  PartialRows partial = {};  ///< what unfinished ones had come to
};

/// Reads the ledgers of list_parts(): of several entries of a row the last one counts. Throws Error(kConfig) when a row
/// is not one of the job's, Error(kIo) on damage.
DoneRows read_done_rows(const std::vector<PartPaths>& parts, int64_t num_rows);

}  // namespace tokenmill::jobs
