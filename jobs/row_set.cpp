#include "jobs/row_set.h"

#include <bit>

#include "kernels/core/check.h"

namespace tokenmill::jobs {

RowSet::RowSet(int64_t num_rows) : num_rows_(num_rows), words_(static_cast<size_t>((num_rows + 63) / 64)) {}

void RowSet::insert(int64_t row) {
  TM_ASSERT(row >= 0 && row < num_rows_, "row {} of {}", row, num_rows_);
  if (contains(row)) return;
  words_[static_cast<size_t>(row / 64)] |= uint64_t{1} << static_cast<unsigned>(row % 64);
  ++count_;
}

void RowSet::erase(int64_t row) {
  TM_ASSERT(row >= 0 && row < num_rows_, "row {} of {}", row, num_rows_);
  if (!contains(row)) return;
  words_[static_cast<size_t>(row / 64)] &= ~(uint64_t{1} << static_cast<unsigned>(row % 64));
  --count_;
}

void RowSet::erase(const RowSet& rows) {
  TM_ASSERT(rows.num_rows_ == num_rows_);
  for (size_t i = 0; i < words_.size(); ++i) {
    count_ -= std::popcount(words_[i] & rows.words_[i]);
    words_[i] &= ~rows.words_[i];
  }
}

}  // namespace tokenmill::jobs
