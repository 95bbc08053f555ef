#pragma once
// The bits of 16-bit and 8-bit floats as f32, exactly. Internal to kernels/emulation/block.
#include <bit>
#include <cstdint>

namespace tokenmill::emulation {

inline float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline float from_f16(uint16_t bits) {
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fff) << 13;
  // Exponents start at -14 in f16, at -126 in f32: the product moves them, and makes normal numbers of small ones.
  float value = std::bit_cast<float>(magnitude) * 0x1p112f;
  if ((bits & 0x7c00) == 0x7c00) value = std::bit_cast<float>(magnitude | 0x7f800000);  // infinity, NaN
  return bits & 0x8000 ? -value : value;
}

/// E5M2 is the upper half of an f16.
inline float from_e5m2(uint8_t bits) { return from_f16(static_cast<uint16_t>(bits << 8)); }

/// E4M3: no infinities, all ones is NaN.
inline float from_e4m3(uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return std::bit_cast<float>(0x7fc00000u);
  const float value = std::bit_cast<float>(static_cast<uint32_t>(bits & 0x7f) << 20) * 0x1p120f;
  return bits & 0x80 ? -value : value;
}

}  // namespace tokenmill::emulation
