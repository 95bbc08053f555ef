#include "jobs/row_set.h"

#include "kernels/core/check.h"

namespace tokenmill::jobs {

RowSet::RowSet(int64_t num_rows) : num_rows_(num_rows), words_(static_cast<size_t>((num_rows + 63) / 64)) {}

void RowSet::insert(int64_t row) {
  TM_ASSERT(row >= 0 && row < num_rows_, "row {} of {}", row, num_rows_);
  if (contains(row)) return;
  words_[static_cast<size_t>(row / 64)] |= uint64_t{1} << static_cast<unsigned>(row % 64);
  ++count_;
}

}  // namespace tokenmill::jobs
