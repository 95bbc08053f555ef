#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tokenmill::io {

/// Takes finished result records in order. Errors of the file system throw Error(kIo) naming the file; after one the
/// writer is unusable. Not thread-safe.
class RecordWriter {
 public:
  virtual ~RecordWriter() = default;
  /// Appends one record, already encoded (for JSONL: one line of JSON without its newline).
  virtual void write(std::string_view record) = 0;
  /// Everything written so far is on stable storage when this returns.
  virtual void sync() = 0;
  /// Flushes and closes; records not flushed by then are lost.
  virtual void close() = 0;
  /// Bytes in the file once everything is flushed.
  virtual int64_t offset() const = 0;
  virtual const std::string& path() const = 0;
};

}  // namespace tokenmill::io
