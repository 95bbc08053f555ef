#include "io/range_reader.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/core/check.h"

namespace tokenmill::io {
namespace {

/// Where the next range continues the same sequence of reads.
bool joins(const ByteRange& range, const ByteRange& next, int64_t max_gap_bytes) {
  return next.file_index == range.file_index && next.offset - (range.offset + range.length) <= max_gap_bytes;
}

void check_ranges(std::span<const std::string> files, std::span<const ByteRange> ranges) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    const ByteRange& range = ranges[i];
    TM_ASSERT(range.file_index >= 0 && static_cast<size_t>(range.file_index) < files.size());
    TM_ASSERT(range.offset >= 0 && range.length >= 0 && range.unit_bytes > 0 && range.length % range.unit_bytes == 0);
    if (i == 0 || ranges[i - 1].file_index < range.file_index) continue;
    TM_ASSERT(
        ranges[i - 1].file_index == range.file_index && ranges[i - 1].offset + ranges[i - 1].length <= range.offset,
        "range {} is out of order or overlaps the one before it", i);
  }
}

/// One run of joined ranges: reads [start of the first, end of the last) chunk by chunk.
class RunReader {
 public:
  RunReader(const File& file, std::span<const ByteRange> ranges, const RangeSink& sink,
            const RangeReaderOptions& options)
      : file_(file), ranges_(ranges), sink_(sink), options_(options) {}

  /// Delivers ranges [first, last); buffer is reused from run to run and grows to the largest unit.
  void read(size_t first, size_t last, std::vector<std::byte>& buffer) {
    const int64_t end = ranges_[last - 1].offset + ranges_[last - 1].length;
    int64_t buffer_start = ranges_[first].offset;  // file offset of buffer[0]
    int64_t held = 0;
    size_t current = first;
    delivered_ = 0;
    while (current < last) {
      const int64_t want = std::min(options_.chunk_bytes, end - buffer_start - held);
      if (static_cast<int64_t>(buffer.size()) < held + want) buffer.resize(static_cast<size_t>(held + want));
      const std::span<std::byte> target =
          std::span(buffer).subspan(static_cast<size_t>(held), static_cast<size_t>(want));
      file_.read_exactly_at(buffer_start + held, target);
      held += want;
      const int64_t next = buffer_start + held;
      if (options_.read_ahead && next < end) file_.will_need(next, std::min(options_.chunk_bytes, end - next));

      current = deliver(current, last, std::span(buffer).first(static_cast<size_t>(held)), buffer_start);
      // What is left is less than one unit of the current range, or a gap before it.
      const int64_t keep_from =
          current < last ? std::min(ranges_[current].offset + delivered_, buffer_start + held) : buffer_start + held;
      held -= keep_from - buffer_start;
      std::memmove(buffer.data(), buffer.data() + (keep_from - buffer_start), static_cast<size_t>(held));
      buffer_start = keep_from;
    }
  }

 private:
  /// Hands over every whole unit in the buffer; returns the first range that is not complete.
  size_t deliver(size_t current, size_t last, std::span<const std::byte> bytes, int64_t bytes_start) {
    const int64_t bytes_end = bytes_start + static_cast<int64_t>(bytes.size());
    for (; current < last; ++current, delivered_ = 0) {
      const ByteRange& range = ranges_[current];
      const int64_t from = range.offset + delivered_;
      int64_t size = std::min(range.length - delivered_, bytes_end - from);
      if (size > 0) {
        size -= size % range.unit_bytes;
        if (size > 0)
          sink_(current, delivered_, bytes.subspan(static_cast<size_t>(from - bytes_start), static_cast<size_t>(size)));
        delivered_ += size;
      }
      if (delivered_ < range.length) return current;
    }
    return current;
  }

  const File& file_;
  std::span<const ByteRange> ranges_;
  const RangeSink& sink_;
  const RangeReaderOptions& options_;
  int64_t delivered_ = 0;  // bytes of the current range
};

}  // namespace

void read_ranges(std::span<const std::string> files, std::span<const ByteRange> ranges, const RangeSink& sink,
                 const RangeReaderOptions& options) {
  TM_ASSERT(options.chunk_bytes > 0 && options.max_gap_bytes >= 0);
  check_ranges(files, ranges);
  std::vector<std::byte> buffer;
  File file;
  int32_t open_index = -1;
  for (size_t first = 0; first < ranges.size();) {
    size_t last = first + 1;
    while (last < ranges.size() && joins(ranges[last - 1], ranges[last], options.max_gap_bytes)) ++last;
    if (ranges[first].file_index != open_index) {
      open_index = ranges[first].file_index;
      file = File::open_read(files[static_cast<size_t>(open_index)]);
    }
    RunReader(file, ranges, sink, options).read(first, last, buffer);
    first = last;
  }
}

}  // namespace tokenmill::io
