#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/record_writer.h"
#include "jobs/activity.h"
#include "jobs/index.h"
#include "jobs/journal/parts.h"

namespace tokenmill::jobs {

using MergeOutputs = std::vector<std::unique_ptr<io::RecordWriter>>;

struct MergeOptions {
  int64_t window_rows = int64_t{1} << 17;   ///< rows sorted at a time; 40 bytes each
  int64_t batch_bytes = int64_t{16} << 20;  ///< of records read at a time
  bool allow_missing = false;               ///< rows without a result are left out
  Activity* activity = nullptr;             ///< told of every batch; may be null
};

struct MergeTotals {
  int64_t rows = 0;
  int64_t failed = 0;
  int64_t bytes = 0;
  void add(const MergeTotals& other) {
    rows += other.rows;
    failed += other.failed;
    bytes += other.bytes;
  }
};

/// Writes the records of all parts to output_path in row order, atomically (temporary, fsync, rename): until it
/// returns, an older file of that name is untouched. parts: in the order of their runs; of several results of a row the
/// latest run's counts. Each of `rows` must occur, at most once in a run, no other may, and all have the checksum their
/// ledger says: Error(kInternal) names a row that is missing or repeated, Error(kIo) a damaged file. Memory is bounded
/// by the options (and one record) plus 40 bytes per 4,096 rows. Each window reads the ledger blocks that touch it,
/// then its records batch by batch, each batch as its records lie in the parts.
MergeTotals merge_parts(const std::vector<PartPaths>& parts, RowRange rows, const std::string& output_path,
                        const MergeOptions& options = {});
/// The same to any number of outputs, committed in their order.
MergeTotals merge_parts(const std::vector<PartPaths>& parts, RowRange rows, const MergeOutputs& outputs,
                        const MergeOptions& options = {});
/// The same behind what the outputs have got already; the caller commits them.
MergeTotals append_parts(const std::vector<PartPaths>& parts, RowRange rows, const MergeOutputs& outputs,
                         const MergeOptions& options = {});

}  // namespace tokenmill::jobs
