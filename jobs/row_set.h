#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tokenmill::jobs {

/// Some of the rows [0, num_rows) of a job, one bit each.
class RowSet {
 public:
  explicit RowSet(int64_t num_rows = 0);
  /// Adds a row of the job; again is fine.
  void insert(int64_t row);
  /// Takes a row out; one that is not in it is fine.
  void erase(int64_t row);
  /// Takes out every row of the other set, which is of the same job.
  void erase(const RowSet& rows);
  bool contains(int64_t row) const {
    return (words_[static_cast<size_t>(row / 64)] >> static_cast<unsigned>(row % 64) & 1u) != 0;
  }
  int64_t num_rows() const { return num_rows_; }  ///< of the job
  int64_t count() const { return count_; }        ///< of the set

 private:
  int64_t num_rows_;
  int64_t count_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace tokenmill::jobs
