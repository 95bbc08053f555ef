#include "kernels/weight_rows.h"

#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/error.h"

using namespace tokenmill;

namespace {

std::vector<std::byte> read_all(const std::string& name) {
  std::ifstream in(std::string(TM_TEST_DATA) + "/dequantize/" + name, std::ios::binary);
  REQUIRE_MESSAGE(in.good(), name);
  std::vector<char> bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::vector<std::byte> out(bytes.size());
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

constexpr WeightFormat kFormats[] = {WeightFormat::kF32,  WeightFormat::kBF16, WeightFormat::kQ4_1, WeightFormat::kQ5_0,
                                     WeightFormat::kQ8_0, WeightFormat::kQ4_K, WeightFormat::kQ6_K};

}  // namespace

TEST_CASE("a slice may cut columns anywhere, inside a quantized block too") {
  for (const WeightFormat format : kFormats) {
    const WeightFormatInfo info = weight_format_info(format);
    CAPTURE(std::string(info.name));
    const std::vector<std::byte> stored = read_all(std::string(info.name) + ".blocks.bin");
    const std::vector<std::byte> wide = read_all(std::string(info.name) + ".f32.bin");
    const auto elements = static_cast<int64_t>(wide.size() / sizeof(float));
    const int64_t cols = 2 * (info.block_elements > 1 ? info.block_elements : 24), rows = elements / cols;
    REQUIRE(rows >= 2);
    const std::span<const std::byte> bytes =
        std::span(stored).first(static_cast<size_t>(rows * weight_row_bytes(format, cols)));
    const std::pair<int64_t, int64_t> cuts[] = {
        {0, cols}, {0, 1}, {cols - 1, cols}, {5, cols - 7}, {cols / 2 - 3, cols / 2 + 4}};
    for (const auto& [begin, end] : cuts) {
      CAPTURE(begin);
      CAPTURE(end);
      LinearPart part{.format = format, .source_rows = rows, .source_cols = cols, .row_begin = 1, .row_end = rows};
      part.col_begin = begin;
      part.col_end = end;
      WeightRows slice({part}, rows - 1, end - begin, "slice");
      int64_t next = 0, wrong = 0;
      slice.write(0, 0, bytes, [&](const WeightRows::Row& row) {
        CHECK_EQ(row.row, next++);
        REQUIRE_EQ(static_cast<int64_t>(row.values.size()), end - begin);
        const auto* want = wide.data() + ((row.row + 1) * cols + begin) * static_cast<int64_t>(sizeof(float));
        wrong += std::memcmp(row.values.data(), want, row.values.size_bytes()) != 0 ? 1 : 0;
      });
      slice.check_complete();
      CHECK_EQ(next, rows - 1);
      CHECK_EQ(wrong, 0);
    }
  }
}

TEST_CASE("parts of different formats may be cut at different columns, and rows may be none") {
  const std::vector<float> plain = {0, 1, 2, 3, 4, 5};
  const std::vector<std::byte> blocks = read_all("Q4_1.blocks.bin"), wide = read_all("Q4_1.f32.bin");
  const LinearPart first{WeightFormat::kF32, 2, 3, 1, 2, 1, 3}, none{WeightFormat::kF32, 2, 3, 1, 1, 0, 2},
      second{WeightFormat::kQ4_1, 1, 64, 0, 1, 31, 33};
  WeightRows stacked({first, none, second}, 2, 2, "stacked");
  std::vector<float> got;
  const auto keep = [&](const WeightRows::Row& row) { got.insert(got.end(), row.values.begin(), row.values.end()); };
  stacked.write(0, 0, std::as_bytes(std::span(plain)), keep);
  stacked.write(1, 0, std::as_bytes(std::span(plain)), keep);
  stacked.write(2, 0, std::span(blocks).first(static_cast<size_t>(weight_row_bytes(WeightFormat::kQ4_1, 64))), keep);
  stacked.check_complete();
  std::vector<float> want = {4, 5, 0, 0};
  std::memcpy(want.data() + 2, wide.data() + 31 * sizeof(float), 2 * sizeof(float));
  CHECK(got == want);
}

TEST_CASE("slices that do not fit are refused: outside the source, ragged widths, half heads") {
  const auto make = [](const LinearPart& part) { WeightRows rows({part}, part.row_end - part.row_begin, 2, "w"); };
  CHECK_THROWS_WITH_AS(make({WeightFormat::kF32, 2, 3, 0, 2, 2, 4}), doctest::Contains("columns [2, 4)"), Error);
  CHECK_THROWS_WITH_AS(make({WeightFormat::kF32, 2, 3, 0, 2, 0, 3}), doctest::Contains("3 columns wide, the result 2"),
                       Error);
  CHECK_THROWS_WITH_AS(make({WeightFormat::kQ8_0, 2, 40, 0, 2, 0, 2}),
                       doctest::Contains("rows of 40, no multiple of 32"), Error);
  CHECK_THROWS_WITH_AS(make({WeightFormat::kF32, 8, 3, 2, 8, 0, 2, RowOrder::kInterleavedToHalves, 4}),
                       doctest::Contains("reorders rows [2, 8) in heads of 4"), Error);
}
