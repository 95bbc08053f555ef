#pragma once
#include <cstdint>
#include <string_view>

namespace tokenmill {

/// How a weight lies in a checkpoint. Plain dtypes and GGUF block formats (block layouts: ggml's documentation of GGUF
/// quantization types). Only Linear (and embedding) look inside.
enum class WeightFormat : uint8_t { kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K };

struct WeightFormatInfo {
  std::string_view name;   ///< "F32", "Q4_1", ...
  int64_t block_elements;  ///< elements of one block along a row; 1 for plain dtypes
  int64_t block_bytes;     ///< bytes of one block
};

constexpr WeightFormatInfo weight_format_info(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return {"F32", 1, 4};
    case WeightFormat::kF16:
      return {"F16", 1, 2};
    case WeightFormat::kBF16:
      return {"BF16", 1, 2};
    case WeightFormat::kQ4_0:
      return {"Q4_0", 32, 18};
    case WeightFormat::kQ4_1:
      return {"Q4_1", 32, 20};
    case WeightFormat::kQ5_0:
      return {"Q5_0", 32, 22};
    case WeightFormat::kQ5_1:
      return {"Q5_1", 32, 24};
    case WeightFormat::kQ8_0:
      return {"Q8_0", 32, 34};
    case WeightFormat::kQ4_K:
      return {"Q4_K", 256, 144};
    case WeightFormat::kQ5_K:
      return {"Q5_K", 256, 176};
    case WeightFormat::kQ6_K:
      return {"Q6_K", 256, 210};
  }
  return {"?", 1, 1};
}

/// Bytes of one row of `elements` (a multiple of block_elements: checked by the readers).
constexpr int64_t weight_row_bytes(WeightFormat format, int64_t elements) {
  const WeightFormatInfo info = weight_format_info(format);
  return elements / info.block_elements * info.block_bytes;
}

/// Expands `elements` values (a multiple of block_elements) of one row into f32, bit-exact with the format's
/// definition. source holds weight_row_bytes(format, elements) bytes, unaligned.
void dequantize_row(WeightFormat format, const void* source, int64_t elements, float* out);

}  // namespace tokenmill
