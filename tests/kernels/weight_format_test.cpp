#include "kernels/core/weight_format.h"

#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using namespace tokenmill;

namespace {

std::vector<char> read_all(const std::string& name) {
  std::ifstream in(std::string(TM_TEST_DATA) + "/dequantize/" + name, std::ios::binary);
  REQUIRE_MESSAGE(in.good(), name);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

constexpr WeightFormat kFormats[] = {WeightFormat::kF32,  WeightFormat::kF16,  WeightFormat::kBF16, WeightFormat::kQ4_0,
                                     WeightFormat::kQ4_1, WeightFormat::kQ5_0, WeightFormat::kQ5_1, WeightFormat::kQ8_0,
                                     WeightFormat::kQ4_K, WeightFormat::kQ5_K, WeightFormat::kQ6_K};

}  // namespace

TEST_CASE("every weight format expands to the stored reference values, bit for bit, at any alignment") {
  for (const WeightFormat format : kFormats) {
    const WeightFormatInfo info = weight_format_info(format);
    CAPTURE(std::string(info.name));
    const auto blocks = read_all(std::string(info.name) + ".blocks.bin");
    const auto want = read_all(std::string(info.name) + ".f32.bin");
    const auto elements = static_cast<int64_t>(want.size() / sizeof(float));
    REQUIRE(elements > 0);
    REQUIRE_EQ(weight_row_bytes(format, elements), static_cast<int64_t>(blocks.size()));
    for (const size_t shift : {0, 1, 3}) {
      std::vector<char> moved(blocks.size() + shift);
      std::memcpy(moved.data() + shift, blocks.data(), blocks.size());
      std::vector<float> got(static_cast<size_t>(elements));
      dequantize_row(format, moved.data() + shift, elements, got.data());
      size_t different = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        different += std::memcmp(&got[i], want.data() + i * sizeof(float), sizeof(float)) != 0 ? 1 : 0;
      }
      CHECK_EQ(different, 0);
    }
  }
}

TEST_CASE("a row that ends inside a block is refused") {
  std::vector<char> block(210);
  std::vector<float> out(256);
  CHECK_THROWS(dequantize_row(WeightFormat::kQ6_K, block.data(), 128, out.data()));
}
