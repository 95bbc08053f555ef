#include "io/jsonl.h"

#include <algorithm>
#include <cstring>

#include "io/file.h"
#include "io/utf8.h"
#include "kernels/core/check.h"

namespace tokenmill::io {
namespace {

constexpr size_t kFirstReadBytes = size_t{16} << 10;
constexpr size_t kBufferBytes = size_t{kReadChunkBytes};
static_assert(kFirstReadBytes <= kBufferBytes);

bool is_blank(const char* text, size_t size) {
  return std::all_of(text, text + size, [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); });
}

std::string_view beginning_of(const char* text, size_t size) {
  return {text, std::min(size, static_cast<size_t>(kRecordPrefixBytes))};
}

}  // namespace

JsonlReader::JsonlReader(std::unique_ptr<ByteStream> stream, const RecordReaderOptions& options)
    : stream_(std::move(stream)), max_record_bytes_(options.max_record_bytes), read_bytes_(kFirstReadBytes) {
  TM_ASSERT(max_record_bytes_ >= 1);
}

RecordPosition JsonlReader::position() const {
  return {.offset = buffer_offset_ + static_cast<int64_t>(begin_), .line = line_};
}

void JsonlReader::seek(const RecordPosition& position) {
  const int64_t in_buffer = position.offset - buffer_offset_;
  line_ = position.line;
  if (in_buffer >= 0 && in_buffer <= static_cast<int64_t>(end_)) {
    begin_ = static_cast<size_t>(in_buffer);
    return;
  }
  stream_->seek(position.offset);
  begin_ = end_ = 0;
  buffer_offset_ = position.offset;
  at_end_ = false;
  read_bytes_ = kFirstReadBytes;
}

/// Reads more behind end_; false at the end of the stream. A line longer than the usual read doubles the buffer, so
/// that its bytes are moved a constant number of times; the buffer shrinks again behind it.
bool JsonlReader::fill() {
  if (at_end_) return false;
  const size_t held = end_ - begin_;
  const size_t longest = static_cast<size_t>(max_record_bytes_) + kFirstReadBytes;
  const size_t wanted = std::max(read_bytes_, std::min(2 * held, longest));
  if (wanted > capacity_ || (capacity_ > 2 * kBufferBytes && wanted <= kBufferBytes)) {
    auto buffer = std::make_unique_for_overwrite<char[]>(wanted);
    if (held > 0) std::memcpy(buffer.get(), buffer_.get() + begin_, held);
    buffer_ = std::move(buffer);
    capacity_ = wanted;
    move_to_front(held);
  } else if (begin_ > 0 && capacity_ - end_ < read_bytes_) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, held);
    move_to_front(held);
  }
  const size_t room = std::min(capacity_ - end_, std::max(read_bytes_, held));
  const int64_t n = stream_->read(std::as_writable_bytes(std::span(buffer_.get() + end_, room)));
  end_ += static_cast<size_t>(n);
  at_end_ = n == 0;
  if (n == static_cast<int64_t>(room)) read_bytes_ = std::min(read_bytes_ * 2, kBufferBytes);
  return n > 0;
}

/// buffer_[begin_, end_) now stands at the front of buffer_.
void JsonlReader::move_to_front(size_t held) {
  buffer_offset_ += static_cast<int64_t>(begin_);
  begin_ = 0;
  end_ = held;
}

void JsonlReader::skip_byte_order_mark() {
  constexpr size_t kSize = kByteOrderMark.size();
  while (end_ - begin_ < kSize && fill()) {
  }
  if (end_ - begin_ >= kSize && std::memcmp(buffer_.get() + begin_, kByteOrderMark.data(), kSize) == 0) begin_ += kSize;
}

bool JsonlReader::next(Record& record) {
  if (position().offset == 0) skip_byte_order_mark();
  for (;;) {
    size_t searched = 0;
    const char* newline = nullptr;
    for (;;) {
      const size_t held = end_ - begin_;
      if (held > searched)
        newline = static_cast<const char*>(std::memchr(buffer_.get() + begin_ + searched, '\n', held - searched));
      if (newline) break;
      searched = held;
      if (static_cast<int64_t>(held) > max_record_bytes_ + 1) break;  // + 1: a CR may belong to the line's end
      if (!fill()) break;
    }
    const char* const text = buffer_.get() + begin_;
    record.line = line_;
    record.offset = position().offset;
    size_t size = newline ? static_cast<size_t>(newline - text) : end_ - begin_;
    if (!newline && size == 0) return false;
    if (!newline && !at_end_) {
      if (skip_rest_of_line(record)) return true;
      continue;
    }
    begin_ += size + (newline ? 1 : 0);
    line_ += newline ? 1 : 0;
    if (is_blank(text, size)) continue;
    if (text[size - 1] == '\r') --size;
    record.length = static_cast<int64_t>(size);
    record.oversized = record.length > max_record_bytes_;
    record.bytes = record.oversized ? std::string_view() : std::string_view(text, size);
    record.prefix = record.oversized ? beginning_of(text, size) : std::string_view();
    return true;
  }
}

/// The line at begin_ is too long to keep: passes over it, counting; false when it is blank after all.
bool JsonlReader::skip_rest_of_line(Record& record) {
  bool blank = true;
  bool ended = false;
  char last = 0;
  record.length = 0;
  prefix_.clear();
  while (!ended && (begin_ < end_ || fill())) {
    const char* const text = buffer_.get() + begin_;
    const char* const newline = static_cast<const char*>(std::memchr(text, '\n', end_ - begin_));
    const size_t size = newline ? static_cast<size_t>(newline - text) : end_ - begin_;
    blank = blank && is_blank(text, size);
    if (size > 0) last = text[size - 1];
    if (prefix_.size() < static_cast<size_t>(kRecordPrefixBytes))
      prefix_ += beginning_of(text, std::min(size, static_cast<size_t>(kRecordPrefixBytes) - prefix_.size()));
    record.length += static_cast<int64_t>(size);
    begin_ += size + (newline ? 1 : 0);
    ended = newline != nullptr;
  }
  if (ended) ++line_;
  if (last == '\r') --record.length;
  record.oversized = true;
  record.bytes = {};
  record.prefix = prefix_;
  return !blank;
}

}  // namespace tokenmill::io
