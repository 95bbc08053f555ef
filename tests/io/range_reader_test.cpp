#include "io/range_reader.h"

#include <doctest/doctest.h>

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
  size_t pieces = 0;
};

Delivery collect(const std::vector<std::string>& files, const std::vector<ByteRange>& ranges,
                 const io::RangeReaderOptions& options) {
  Delivery delivery;
  size_t last_range = 0;
  io::read_ranges(
      files, ranges,
      [&](size_t range, int64_t offset, std::span<const std::byte> bytes) {
        CHECK(range >= last_range);
        last_range = range;
        CHECK(offset == static_cast<int64_t>(delivery.bytes[range].size()));
        CHECK_FALSE(bytes.empty());
        CHECK(static_cast<int64_t>(bytes.size()) % ranges[range].unit_bytes == 0);
        delivery.bytes[range].append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        ++delivery.pieces;
      },
      options);
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
        Delivery delivery =
            collect(files, ranges, {.chunk_bytes = chunk, .max_gap_bytes = gap, .read_ahead = chunk % 2 == 0});
        for (size_t i = 0; i < ranges.size(); ++i) {
          const std::string expected = contents[static_cast<size_t>(ranges[i].file_index)].substr(
              static_cast<size_t>(ranges[i].offset), static_cast<size_t>(ranges[i].length));
          REQUIRE(delivery.bytes[i] == expected);
        }
      }
    }
  }
}

TEST_CASE("a range that fits a chunk is one piece, a longer one comes in pieces of at most a chunk") {
  const test::TempDir dir;
  const std::vector<std::string> files = {dir.write("f", noise(1000, 1))};
  CHECK(collect(files, {{0, 0, 400}, {0, 400, 600}}, {.chunk_bytes = 1000}).pieces == 2);
  CHECK(collect(files, {{0, 0, 1000}}, {.chunk_bytes = 100}).pieces == 10);
  CHECK(collect(files, {{0, 0, 1000, 500}}, {.chunk_bytes = 100}).pieces == 2);
  CHECK(collect(files, {{0, 0, 0}, {0, 10, 0}}, {}).pieces == 0);
  CHECK(collect(files, {}, {}).pieces == 0);
}

TEST_CASE("a file that ends before its range is an error that names it") {
  const test::TempDir dir;
  const std::vector<std::string> files = {dir.write("f", noise(1000, 1)), dir / "absent"};
  CHECK_THROWS_WITH_AS(collect(files, {{0, 900, 101}}, {}),
                       doctest::Contains("f: is cut off: 101 bytes wanted at offset 900"), Error);
  CHECK_THROWS_WITH_AS(collect(files, {{1, 0, 1}}, {}), doctest::Contains("absent: cannot open"), Error);
}

TEST_CASE("ranges out of order, overlapping or without a file are refused") {
  const test::TempDir dir;
  const std::vector<std::string> files = {dir.write("f", noise(1000, 1)), dir.write("g", noise(1000, 2))};
  CHECK_THROWS_AS(collect(files, {{0, 100, 10}, {0, 50, 10}}, {}), Error);
  CHECK_THROWS_AS(collect(files, {{0, 100, 10}, {0, 109, 10}}, {}), Error);
  CHECK_THROWS_AS(collect(files, {{1, 0, 10}, {0, 0, 10}}, {}), Error);
  CHECK_THROWS_AS(collect(files, {{2, 0, 10}}, {}), Error);
  CHECK_THROWS_AS(collect(files, {{0, 0, 10, 3}}, {}), Error);
}
