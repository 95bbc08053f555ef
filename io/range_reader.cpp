#include "io/range_reader.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill::io {
namespace {

void check_ranges(std::span<const ByteRange> ranges) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    const ByteRange& range = ranges[i];
    TM_ASSERT(range.file_index >= 0 && range.offset >= 0 && range.length >= 0 && range.unit_bytes > 0 &&
              range.length % range.unit_bytes == 0);
    if (i == 0 || ranges[i - 1].file_index < range.file_index) continue;
    TM_ASSERT(
        ranges[i - 1].file_index == range.file_index && ranges[i - 1].offset + ranges[i - 1].length <= range.offset,
        "range {} is out of order or overlaps the one before it", i);
  }
}

/// Appends ranges to a plan's last chunk while they fit it.
class Planner {
 public:
  explicit Planner(const ReadPlanOptions& options) : options_(options) {}

  void add(size_t index, const ByteRange& range) {
    for (int64_t done = 0; done < range.length;) {
      if (!continues(range, done))
        plan_.chunks.push_back({range.file_index, range.offset + done, 0, plan_.pieces.size(), 0});
      ReadChunk& chunk = plan_.chunks.back();
      const int64_t start = range.offset + done - chunk.offset;  // a new chunk takes one unit, however large
      const int64_t room = std::max(options_.chunk_bytes - start, range.unit_bytes);
      const int64_t length = std::min(range.length - done, room / range.unit_bytes * range.unit_bytes);
      plan_.pieces.push_back({index, done, length, start});
      ++chunk.num_pieces;
      chunk.length = start + length;
      done += length;
    }
  }

  ReadPlan finish() {
    for (const ReadChunk& chunk : plan_.chunks) {
      plan_.largest_chunk_bytes = std::max(plan_.largest_chunk_bytes, chunk.length);
      plan_.total_bytes += chunk.length;
    }
    return std::move(plan_);
  }

 private:
  /// Whether the last chunk can hold at least one unit of range from `done` on.
  bool continues(const ByteRange& range, int64_t done) const {
    if (plan_.chunks.empty()) return false;
    const ReadChunk& last = plan_.chunks.back();
    const int64_t from = range.offset + done, gap = from - (last.offset + last.length);
    return last.file_index == range.file_index && gap <= options_.max_gap_bytes &&
           from + range.unit_bytes - last.offset <= options_.chunk_bytes;
  }

  const ReadPlanOptions& options_;
  ReadPlan plan_;
};

}  // namespace

ReadPlan plan_reads(std::span<const ByteRange> ranges, const ReadPlanOptions& options) {
  TM_ASSERT(options.chunk_bytes > 0 && options.max_gap_bytes >= 0);
  check_ranges(ranges);
  Planner planner(options);
  for (size_t i = 0; i < ranges.size(); ++i) planner.add(i, ranges[i]);
  return planner.finish();
}

void ChunkReader::read(size_t chunk_index, std::span<std::byte> out) {
  const ReadChunk& chunk = plan_.chunks.at(chunk_index);
  TM_ASSERT(static_cast<int64_t>(out.size()) == chunk.length);
  if (chunk.file_index != open_index_) {
    open_index_ = -1;
    file_ = File::open_read(files_[static_cast<size_t>(chunk.file_index)]);
    open_index_ = chunk.file_index;
  }
  file_.read_exactly_at(chunk.offset, out);
}

void ChunkReader::will_need(size_t chunk_index) const {
  if (chunk_index >= plan_.chunks.size()) return;
  const ReadChunk& chunk = plan_.chunks[chunk_index];
  if (chunk.file_index == open_index_) file_.will_need(chunk.offset, chunk.length);
}

}  // namespace tokenmill::io
