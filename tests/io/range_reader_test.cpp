#include "io/range_reader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "tests/support/temp_dir.h"

using namespace tokenmill;
using io::ByteRange;

namespace {

std::string noise(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

struct Delivery {
  std::map<size_t, std::string> bytes;  // by range
  size_t pieces = 0, chunks = 0;
  int64_t largest = 0, total = 0;
};

Delivery collect(const std::vector<std::string>& files, const std::vector<ByteRange>& ranges,
                 const io::ReadPlanOptions& options) {
  Delivery delivery;
  const io::ReadPlan plan = io::plan_reads(ranges, options);
  io::ChunkReader reader(files, plan);
  size_t last_range = 0, next_piece = 0;
  int64_t total = 0;
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    const io::ReadChunk& chunk = plan.chunks[i];
    CHECK(chunk.length > 0);
    CHECK(chunk.first_piece == next_piece);
    next_piece += chunk.num_pieces;
    total += chunk.length;
    std::string bytes(static_cast<size_t>(chunk.length), '?');
    reader.will_need(i + 1);
    reader.read(i, std::as_writable_bytes(std::span(bytes)));
    for (const io::ReadPiece& piece : plan.pieces_of(chunk)) {
      const ByteRange& range = ranges[piece.range_index];
      CHECK(range.file_index == chunk.file_index);
      CHECK(piece.range_index >= last_range);
      last_range = piece.range_index;
      CHECK(piece.offset == static_cast<int64_t>(delivery.bytes[piece.range_index].size()));
      CHECK(piece.length > 0);
      CHECK(piece.length % range.unit_bytes == 0);
      delivery.bytes[piece.range_index] +=
          bytes.substr(static_cast<size_t>(piece.chunk_offset), static_cast<size_t>(piece.length));
      ++delivery.pieces;
    }
    if (chunk.length > options.chunk_bytes) {
      CHECK(chunk.num_pieces == 1);
      CHECK(plan.pieces_of(chunk)[0].length == ranges[plan.pieces_of(chunk)[0].range_index].unit_bytes);
    }
    delivery.largest = std::max(delivery.largest, chunk.length);
  }
  CHECK(delivery.largest == plan.largest_chunk_bytes);
  CHECK(total == plan.total_bytes);
  delivery.total = total;
  delivery.chunks = plan.chunks.size();
  return delivery;
}

}  // namespace

TEST_CASE("every range arrives whole and in order, in whole units, whatever the chunk and gap sizes") {
  const test::TempDir dir;
  const std::vector<std::string> contents = {noise(4000, 1), noise(10, 2), noise(2500, 3)};
  std::vector<std::string> files;
  for (size_t i = 0; i < contents.size(); ++i) files.push_back(dir.write("f" + std::to_string(i), contents[i]));
  std::mt19937 random(9);
  for (int round = 0; round < 10; ++round) {
    std::vector<ByteRange> ranges;
    for (int32_t f : {0, 2}) {
      int64_t at = 0;
      for (;;) {
        at += random() % 3 == 0 ? static_cast<int64_t>(random() % 700) : 0;
        const int64_t unit = 1 + static_cast<int64_t>(random() % 300);
        const int64_t length = unit * static_cast<int64_t>(random() % 9);
        if (at + length > static_cast<int64_t>(contents[static_cast<size_t>(f)].size())) break;
        ranges.push_back({f, at, length, unit});
        at += length;
      }
    }
    for (int64_t chunk : {1, 7, 100, 1000, 100000}) {
      for (int64_t gap : {0, 50, 100000}) {
        CAPTURE(round);
        CAPTURE(chunk);
        CAPTURE(gap);
        Delivery delivery = collect(files, ranges, {.chunk_bytes = chunk, .max_gap_bytes = gap});
        if (gap == 0) {
          int64_t wanted = 0;
          for (const ByteRange& range : ranges) wanted += range.length;
          CHECK(delivery.total == wanted);
        }
        for (size_t i = 0; i < ranges.size(); ++i) {
          const std::string expected = contents[static_cast<size_t>(ranges[i].file_index)].substr(
              static_cast<size_t>(ranges[i].offset), static_cast<size_t>(ranges[i].length));
          REQUIRE(delivery.bytes[i] == expected);
        }
      }
    }
  }
}

TEST_CASE("neighbours share reads, longer ranges come in pieces of at most a chunk, a unit is never cut") {
  const test::TempDir dir;
  const std::vector<std::string> files = {dir.write("f", noise(1000, 1))};
  Delivery delivery = collect(files, {{0, 0, 400}, {0, 400, 600}}, {.chunk_bytes = 1000});
  CHECK(delivery.pieces == 2);
  CHECK(delivery.chunks == 1);
  CHECK(collect(files, {{0, 0, 1000}}, {.chunk_bytes = 100}).pieces == 10);
  CHECK(collect(files, {{0, 0, 1000, 500}}, {.chunk_bytes = 100}).chunks == 2);
  delivery = collect(files, {{0, 0, 90}, {0, 90, 300, 100}}, {.chunk_bytes = 200});
  CHECK(delivery.chunks == 2);  // [0, 190) and [190, 390)
  CHECK(delivery.largest == 200);
  CHECK(collect(files, {{0, 0, 0}, {0, 10, 0}}, {}).chunks == 0);
  CHECK(collect(files, {}, {}).chunks == 0);
}

TEST_CASE("a small gap is read over, a larger one is not read at all") {
  const test::TempDir dir;
  const std::vector<std::string> files = {dir.write("f", noise(1000, 1))};
  const std::vector<ByteRange> ranges = {{0, 0, 100}, {0, 150, 100}, {0, 900, 100}};
  const Delivery delivery = collect(files, ranges, {.chunk_bytes = 1000, .max_gap_bytes = 50});
  CHECK(delivery.chunks == 2);
  CHECK(delivery.total == 350);
}

TEST_CASE("a file that ends before its range is an error that names it") {
  const test::TempDir dir;
  const std::vector<std::string> files = {dir.write("f", noise(1000, 1)), dir / "absent"};
  CHECK_THROWS_WITH_AS(collect(files, {{0, 900, 101}}, {}),
                       doctest::Contains("f: is cut off: 101 bytes wanted at offset 900"), Error);
  CHECK_THROWS_WITH_AS(collect(files, {{1, 0, 1}}, {}), doctest::Contains("absent: cannot open"), Error);
}

TEST_CASE("ranges out of order, overlapping or cut inside a unit are refused") {
  CHECK_THROWS_AS(io::plan_reads(std::vector<ByteRange>{{0, 100, 10}, {0, 50, 10}}), Error);
  CHECK_THROWS_AS(io::plan_reads(std::vector<ByteRange>{{0, 100, 10}, {0, 109, 10}}), Error);
  CHECK_THROWS_AS(io::plan_reads(std::vector<ByteRange>{{1, 0, 10}, {0, 0, 10}}), Error);
  CHECK_THROWS_AS(io::plan_reads(std::vector<ByteRange>{{0, 0, 10, 3}}), Error);
}
