#pragma once
#include <cstddef>
#include <memory>
#include <set>

#include "io/record_reader.h"
#include "jobs/generator.h"
#include "jobs/index.h"

namespace tokenmill::jobs {

/// Reads rows of the job by number. A row behind the one read last is read on; others cost a seek, and passing over at
/// most 1,023 records when nobody knows where they start. Not thread-safe.
class RowReader {
 public:
  /// index outlives the reader.
  explicit RowReader(const Index& index, const io::RecordReaderOptions& options = {})
      : index_(index), options_(options) {}

  /// The record is valid until the next call; empty when source.oversized_bytes is set. position: the row's, if known
  /// (offset -1: not). Throws Error(kIo) when the file is not the one that was indexed.
  std::string_view read(int64_t row, RecordSource& source, const io::RecordPosition& position = {.offset = -1});

  /// Throws Error(kIo) when a file that rows were read from has changed since.
  void check_unchanged() const;

 private:
  void go_to(int64_t row, const io::RecordPosition& position);
  const Index& index_;
  io::RecordReaderOptions options_;
  std::unique_ptr<io::RecordReader> reader_;
  size_t file_ = 0;       // of reader_
  std::set<size_t> files_read_;
  int64_t next_row_ = 0;  // the row reader_ delivers next
};

}  // namespace tokenmill::jobs
