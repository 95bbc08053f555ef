#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "jobs/journal/parts.h"

namespace tokenmill::jobs {

/// Where a record lies.
struct RecordPlace {
  int32_t part = -1;
  int64_t offset = 0, length = 0;
};

/// Reads records of part files many at a time: in the order in which they lie, neighbours by one read. So rows that
/// finished in another order than theirs cost their bytes, not a seek and a block each.
class PartReader {
 public:
  /// parts outlive the reader.
  explicit PartReader(const std::vector<PartPaths>& parts) : parts_(parts), files_(parts.size()) {}

  /// Reads these records; they are valid until the next call, and memory holds all of them. Throws Error(kIo) naming a
  /// part that ends before one of them does.
  void read(std::span<const RecordPlace> places);
  /// Record i of the last read().
  std::string_view record(size_t i) const;

 private:
  /// places order_[begin, end) of one part, and the bytes from the first to the last.
  struct Run {
    size_t begin = 0, end = 0;
    int64_t offset = 0, length = 0;
  };
  Run next_run(std::span<const RecordPlace> places, size_t begin) const;
  void read_run(std::span<const RecordPlace> places, const Run& run);
  void read_bytes(const RecordPlace& last, int64_t offset, std::span<char> bytes);
  const io::File& file(size_t part);

  const std::vector<PartPaths>& parts_;
  std::vector<io::File> files_;  // opened when first read
  int num_open_ = 0;
  std::vector<char> bytes_;     // of the records, in their order
  std::vector<size_t> starts_;  // in bytes_; one more than records
  std::vector<size_t> order_;   // of the records, as they lie
  std::vector<char> run_;       // scratch
};

}  // namespace tokenmill::jobs
