#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "io/file.h"

namespace tokenmill::io {

/// Bytes wanted from one of several files.
struct ByteRange {
  int32_t file_index = 0;
  int64_t offset = 0;
  int64_t length = 0;
  /// Pieces hold whole units (a row, a block), counted from the range's start; must divide length.
  int64_t unit_bytes = 1;
};

struct RangeReaderOptions {
  int64_t chunk_bytes = kReadChunkBytes;  ///< of one pread, and the buffer's size unless one unit is larger
  int64_t max_gap_bytes = 64 << 10;       ///< a gap up to this is read over: one large read beats two smaller ones
  bool read_ahead = true;                 ///< asks the kernel for the next chunk while this one is used
};

/// Receives one piece: `bytes` stand at `offset` within ranges[range_index]. Pieces of a range come in order; the bytes
/// are valid during the call.
using RangeSink = std::function<void(size_t range_index, int64_t offset, std::span<const std::byte> bytes)>;

/// Streams the ranges, sorted by (file_index, offset) and free of overlaps, through one buffer by large sequential
/// preads; neighbours share reads. Each file is opened once, when its first range is due. Throws Error(kIo) naming the
/// file when it cannot be read or ends too early, and whatever the sink throws.
void read_ranges(std::span<const std::string> files, std::span<const ByteRange> ranges, const RangeSink& sink,
                 const RangeReaderOptions& options = {});

}  // namespace tokenmill::io
