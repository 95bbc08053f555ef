#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "jobs/ledger_blocks.h"
#include "jobs/merge.h"
#include "jobs/part_reader.h"

namespace tokenmill::jobs {

/// Hands the records of stretches of rows to outputs, in order of row; what merges are made of. Bounds, checks and errors
/// as merge_parts().
class RowMerge {
 public:
  /// All outlive it.
  RowMerge(const std::vector<PartPaths>& parts, const LedgerBlocks& blocks, const MergeOutputs& outputs,
           const MergeOptions& options)
      : parts_(parts), blocks_(blocks), reader_(parts), outputs_(outputs), options_(options) {}

  /// Bytes of the records of rows [begin, end), by the ledgers alone.
  int64_t bytes_of(int64_t begin, int64_t end);
  /// Writes rows [begin, end) to the outputs.
  void copy(int64_t begin, int64_t end);
  /// Of all that has been copied.
  const MergeTotals& totals() const { return totals_; }

 private:
  /// What the ledgers say of a row. place.part -1: nothing yet.
  struct Slot {
    RecordPlace place;
    uint64_t record_digest = 0;
    bool failed = false;
  };
  void collect(int64_t begin, int64_t end);
  int64_t copy_some(int64_t window_begin, int64_t row, int64_t window_end);
  void copy_record(int64_t row, const Slot& slot, std::string_view record);

  const std::vector<PartPaths>& parts_;
  const LedgerBlocks& blocks_;
  PartReader reader_;
  const MergeOutputs& outputs_;
  const MergeOptions options_;
  std::vector<Slot> slots_;
  std::vector<RecordPlace> places_;  // scratch, as rows_
  std::vector<int64_t> rows_;
  MergeTotals totals_;
};

/// Throws Error(kInternal) when ledgers name other rows.
void check_rows(const LedgerBlocks& blocks, RowRange rows);

}  // namespace tokenmill::jobs
