#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tokenmill::io {

/// Writes the bytes [begin, end) of an existing file in order, through a buffer, by pwrite: several processes may write
/// stretches of one file at once. Throws Error(kIo) naming the file.
class RangeWriter {
 public:
  RangeWriter(const std::string& path, int64_t begin, int64_t end, int64_t buffer_bytes = int64_t{8} << 20);
  ~RangeWriter();
  RangeWriter(const RangeWriter&) = delete;
  RangeWriter& operator=(const RangeWriter&) = delete;

  /// Bytes of the file from `offset` on, given in order and without holes; those outside the range are passed over.
  void write(int64_t offset, std::string_view bytes);
  /// All of the range has been given, and is on stable storage.
  void close();

 private:
  void flush();
  const std::string path_;
  const int64_t end_, buffer_bytes_;
  int64_t next_;  // of the file, behind what has been given
  std::string buffer_;
  int fd_ = -1;
};

}  // namespace tokenmill::io
