#include "io/range_writer.h"

#include <algorithm>
#include <span>

#include "kernels/core/check.h"

namespace tokenmill::io {

RangeWriter::RangeWriter(const std::string& path, int64_t begin, int64_t end, int64_t buffer_bytes)
    : file_(File::open_write(path)), end_(end), buffer_bytes_(buffer_bytes), next_(begin) {
  TM_ASSERT(begin >= 0 && begin <= end && buffer_bytes > 0);
}

void RangeWriter::write(int64_t offset, std::string_view bytes) {
  const int64_t begin = std::max(offset, next_), end = std::min(offset + static_cast<int64_t>(bytes.size()), end_);
  if (begin >= end) return;
  TM_ASSERT(begin == next_, "{}: bytes from {} on are given, {} would follow", file_.path(), begin, next_);
  bytes = bytes.substr(static_cast<size_t>(begin - offset), static_cast<size_t>(end - begin));
  next_ = end;
  buffer_ += bytes;
  if (static_cast<int64_t>(buffer_.size()) >= buffer_bytes_) flush();
}

void RangeWriter::flush() {
  file_.write_all_at(next_ - static_cast<int64_t>(buffer_.size()), std::as_bytes(std::span(buffer_)));
  buffer_.clear();
}

void RangeWriter::close() {
  TM_ASSERT(next_ == end_, "{}: bytes up to {} were given, the range ends at {}", file_.path(), next_, end_);
  flush();
  file_.sync();
  file_.close();
}

}  // namespace tokenmill::io
