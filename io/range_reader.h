#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

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

struct ReadPlanOptions {
  int64_t chunk_bytes = kReadChunkBytes;  ///< of one read, unless one unit is larger
  int64_t max_gap_bytes = 64 << 10;       ///< a gap up to this is read over: one large read beats two smaller ones
};

/// Part of a range, as one chunk holds it: whole units.
struct ReadPiece {
  size_t range_index = 0;
  int64_t offset = 0;  ///< within the range
  int64_t length = 0;
  int64_t chunk_offset = 0;  ///< of its first byte in the chunk
};

/// One sequential read: bytes [offset, offset + length) of a file.
struct ReadChunk {
  int32_t file_index = 0;
  int64_t offset = 0, length = 0;
  size_t first_piece = 0, num_pieces = 0;  ///< in ReadPlan::pieces
};

/// How ranges are read.
struct ReadPlan {
  std::vector<ReadChunk> chunks;
  std::vector<ReadPiece> pieces;
  int64_t largest_chunk_bytes = 0;
  int64_t total_bytes = 0;  ///< of all chunks, gaps included

  std::span<const ReadPiece> pieces_of(const ReadChunk& chunk) const {
    return std::span(pieces).subspan(chunk.first_piece, chunk.num_pieces);
  }
};

/// Pure. The ranges, sorted by (file_index, offset) and free of overlaps, as large sequential reads which neighbours
/// share. Each byte of each range lies in exactly one piece; chunks and pieces follow the ranges' order. Empty ranges
/// have no pieces.
ReadPlan plan_reads(std::span<const ByteRange> ranges, const ReadPlanOptions& options = {});

/// Reads the chunks of a plan, in any order; each file is opened when its first chunk is due, and one is open at a
/// time.
class ChunkReader {
 public:
  /// files and plan outlive it.
  ChunkReader(std::span<const std::string> files, const ReadPlan& plan) : files_(files), plan_(plan) {}
  /// out: the chunk's length. Throws Error(kIo) naming the file when it cannot be read or ends too early.
  void read(size_t chunk_index, std::span<std::byte> out);
  /// Asks the kernel for a chunk of the open file that is read soon; any other index is ignored.
  void will_need(size_t chunk_index) const;

 private:
  std::span<const std::string> files_;
  const ReadPlan& plan_;
  File file_;
  int32_t open_index_ = -1;
};

}  // namespace tokenmill::io
