#include "jobs/journal/done_rows.h"

#include "jobs/journal/ledger.h"
#include "kernels/core/error.h"

namespace tokenmill::jobs {

DoneRows read_done_rows(const std::vector<PartPaths>& parts, int64_t num_rows) {
  DoneRows rows{RowSet(num_rows), RowSet(num_rows)};
  for (const PartPaths& paths : parts) {
    LedgerReader(paths.ledger).for_each([&](const LedgerEntry& entry) {
      if (entry.row < 0 || entry.row >= num_rows)
        throw Error(ErrorKind::kConfig,
                    "{} has a result of row {}, but the inputs have {} rows; give the inputs that the job began with, "
                    "--restart to begin anew, or another --output",
                    paths.ledger, entry.row, num_rows);
      if (entry.partial) return rows.partial.insert(entry, paths.part);
      rows.partial.erase(entry.row);
      rows.done.insert(entry.row);
      if (entry.failed)
        rows.failed.insert(entry.row);
      else
        rows.failed.erase(entry.row);
    });
  }
  return rows;
}

}  // namespace tokenmill::jobs
