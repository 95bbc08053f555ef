#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "io/file.h"

namespace tokenmill::io {

/// Writes the bytes [begin, end) of an existing file in order, through a buffer, by pwrite: several processes may write
/// stretches of one file at once. Throws Error(kIo) naming the file.
class RangeWriter {
 public:
  RangeWriter(const std::string& path, int64_t begin, int64_t end, int64_t buffer_bytes = int64_t{8} << 20);

  /// Bytes of the file from `offset` on, given in order and without holes; those outside the range are passed over.
  void write(int64_t offset, std::string_view bytes);
  /// All of the range has been given, and is on stable storage.
  void close();

 private:
  void flush();
  File file_;
  const int64_t end_, buffer_bytes_;
  int64_t next_;  // of the file, behind what has been given
  std::string buffer_;
};

}  // namespace tokenmill::io
