#include "io/range_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/core/check.h"
#include "kernels/core/error.h"

namespace tokenmill::io {
namespace {

[[noreturn]] void fail(const std::string& path, const char* action, int error) {
  throw Error(ErrorKind::kIo, "{}: cannot {}: {} (errno {})", path, action, std::strerror(error), error);
}

}  // namespace

RangeWriter::RangeWriter(const std::string& path, int64_t begin, int64_t end, int64_t buffer_bytes)
    : path_(path), end_(end), buffer_bytes_(buffer_bytes), next_(begin) {
  TM_ASSERT(begin >= 0 && begin <= end && buffer_bytes > 0);
  fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd_ < 0) fail(path, "open for writing", errno);
}

RangeWriter::~RangeWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void RangeWriter::write(int64_t offset, std::string_view bytes) {
  const int64_t begin = std::max(offset, next_), end = std::min(offset + static_cast<int64_t>(bytes.size()), end_);
  if (begin >= end) return;
  TM_ASSERT(begin == next_, "{}: bytes from {} on are given, {} would follow", path_, begin, next_);
  bytes = bytes.substr(static_cast<size_t>(begin - offset), static_cast<size_t>(end - begin));
  next_ = end;
  buffer_ += bytes;
  if (static_cast<int64_t>(buffer_.size()) >= buffer_bytes_) flush();
}

void RangeWriter::flush() {
  std::string_view left = buffer_;
  for (int64_t at = next_ - static_cast<int64_t>(left.size()); !left.empty();) {
    const ssize_t written = ::pwrite(fd_, left.data(), left.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_, "write", errno);
    at += written;
    left.remove_prefix(static_cast<size_t>(written));
  }
  buffer_.clear();
}

void RangeWriter::close() {
  TM_ASSERT(next_ == end_, "{}: bytes up to {} were given, the range ends at {}", path_, next_, end_);
  flush();
  if (::fsync(fd_) != 0) fail(path_, "sync", errno);
  if (::close(std::exchange(fd_, -1)) != 0) fail(path_, "close", errno);
}

}  // namespace tokenmill::io
