#pragma once
#include <bit>
#include <cstdint>
#include <string_view>

namespace tokenmill {

/// Fixed-width element types of tensors. Block formats (Q4_1, ...) are weight formats (weight_format.h), not dtypes.
enum class DType : uint8_t { kF32, kBF16, kF16, kI32, kI64, kU8 };

constexpr int64_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kF32: return 4;
    case DType::kBF16: return 2;
    case DType::kF16: return 2;
    case DType::kI32: return 4;
    case DType::kI64: return 8;
    case DType::kU8: return 1;
  }
  return 0;
}

/// "float32", "bfloat16", "float16", "int32", "int64", "uint8".
std::string_view to_string(DType dtype);

/// Storage of one bfloat16: the upper half of an f32.
struct bf16 {
  uint16_t bits;
};
/// Storage of one IEEE binary16.
struct f16 {
  uint16_t bits;
};

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
float to_float(f16 x);

/// Round to nearest, ties to even; NaN stays NaN (quiet).
inline bf16 to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}
f16 to_f16(float x);

template <typename T>
struct dtype_of;
template <>
struct dtype_of<float> { static constexpr DType value = DType::kF32; };
template <>
struct dtype_of<bf16> { static constexpr DType value = DType::kBF16; };
template <>
struct dtype_of<f16> { static constexpr DType value = DType::kF16; };
template <>
struct dtype_of<int32_t> { static constexpr DType value = DType::kI32; };
template <>
struct dtype_of<int64_t> { static constexpr DType value = DType::kI64; };
template <>
struct dtype_of<uint8_t> { static constexpr DType value = DType::kU8; };

}  // namespace tokenmill
