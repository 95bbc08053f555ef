#include "kernels/core/weight_format.h"

#include <cstring>

#include "kernels/core/check.h"
#include "kernels/core/dtype.h"

// Block definitions: ggml's GGUF quantization types. Each value is formed with the same operations in the same order as
// there (this file is compiled without FMA contraction), so the result is bit-exact.
namespace tokenmill {
namespace {

float load_half(const uint8_t* p) {
  f16 value;
  std::memcpy(&value.bits, p, sizeof(value.bits));
  return to_float(value);
}

// 32 elements: scale d, nibbles; element j is the low nibble of byte j, element j + 16 the high one.
void q4_0(const uint8_t* block, float* out) {
  const float d = load_half(block);
  const uint8_t* nibbles = block + 2;
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((nibbles[j] & 0xf) - 8) * d;
    out[j + 16] = static_cast<float>((nibbles[j] >> 4) - 8) * d;
  }
}

void q4_1(const uint8_t* block, float* out) {
  const float d = load_half(block), m = load_half(block + 2);
  const uint8_t* nibbles = block + 4;
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(nibbles[j] & 0xf) * d + m;
    out[j + 16] = static_cast<float>(nibbles[j] >> 4) * d + m;
  }
}

// The fifth bit of element j is bit j of a 32-bit word.
void q5_0(const uint8_t* block, float* out) {
  const float d = load_half(block);
  uint32_t high;
  std::memcpy(&high, block + 2, sizeof(high));
  const uint8_t* nibbles = block + 6;
  for (int j = 0; j < 16; ++j) {
    const int low_value = (nibbles[j] & 0xf) | static_cast<int>(((high >> j) & 1u) << 4);
    const int high_value = (nibbles[j] >> 4) | static_cast<int>(((high >> (j + 16)) & 1u) << 4);
    out[j] = static_cast<float>(low_value - 16) * d;
    out[j + 16] = static_cast<float>(high_value - 16) * d;
  }
}

void q5_1(const uint8_t* block, float* out) {
  const float d = load_half(block), m = load_half(block + 2);
  uint32_t high;
  std::memcpy(&high, block + 4, sizeof(high));
  const uint8_t* nibbles = block + 8;
  for (int j = 0; j < 16; ++j) {
    const int low_value = (nibbles[j] & 0xf) | static_cast<int>(((high >> j) & 1u) << 4);
    const int high_value = (nibbles[j] >> 4) | static_cast<int>(((high >> (j + 16)) & 1u) << 4);
    out[j] = static_cast<float>(low_value) * d + m;
    out[j + 16] = static_cast<float>(high_value) * d + m;
  }
}

void q8_0(const uint8_t* block, float* out) {
  const float d = load_half(block);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(static_cast<int8_t>(block[2 + j])) * d;
}

struct ScaleMin {
  float scale, min;
};

// Eight 6-bit scales and eight 6-bit minima in 12 bytes.
ScaleMin scale_min(const uint8_t* packed, int j) {
  if (j < 4) return {static_cast<float>(packed[j] & 63), static_cast<float>(packed[j + 4] & 63)};
  return {static_cast<float>((packed[j + 4] & 0xf) | ((packed[j - 4] >> 6) << 4)),
          static_cast<float>((packed[j + 4] >> 4) | ((packed[j] >> 6) << 4))};
}

// 256 elements in eight groups of 32; groups 2i and 2i + 1 are the low and high nibbles of the same 32 bytes.
void q4_k(const uint8_t* block, float* out) {
  const float d = load_half(block), d_min = load_half(block + 2);
  const uint8_t* scales = block + 4;
  const uint8_t* nibbles = block + 16;
  for (int pair = 0; pair < 4; ++pair, nibbles += 32, out += 64) {
    const ScaleMin a = scale_min(scales, 2 * pair), b = scale_min(scales, 2 * pair + 1);
    const float d1 = d * a.scale, m1 = d_min * a.min, d2 = d * b.scale, m2 = d_min * b.min;
    for (int l = 0; l < 32; ++l) {
      out[l] = d1 * static_cast<float>(nibbles[l] & 0xf) - m1;
      out[l + 32] = d2 * static_cast<float>(nibbles[l] >> 4) - m2;
    }
  }
}

void q5_k(const uint8_t* block, float* out) {
  const float d = load_half(block), d_min = load_half(block + 2);
  const uint8_t* scales = block + 4;
  const uint8_t* high = block + 16;
  const uint8_t* nibbles = block + 48;
  for (int pair = 0; pair < 4; ++pair, nibbles += 32, out += 64) {
    const ScaleMin a = scale_min(scales, 2 * pair), b = scale_min(scales, 2 * pair + 1);
    const float d1 = d * a.scale, m1 = d_min * a.min, d2 = d * b.scale, m2 = d_min * b.min;
    for (int l = 0; l < 32; ++l) {
      const int fifth1 = (high[l] >> (2 * pair)) & 1, fifth2 = (high[l] >> (2 * pair + 1)) & 1;
      out[l] = d1 * static_cast<float>((nibbles[l] & 0xf) + 16 * fifth1) - m1;
      out[l + 32] = d2 * static_cast<float>((nibbles[l] >> 4) + 16 * fifth2) - m2;
    }
  }
}

// 256 elements in two halves of 128; each half: 64 bytes of nibbles, 32 bytes of upper bit pairs, 8 signed scales.
void q6_k(const uint8_t* block, float* out) {
  const uint8_t* low = block;
  const uint8_t* high = block + 128;
  const auto* scales = reinterpret_cast<const int8_t*>(block + 192);
  const float d = load_half(block + 208);
  for (int half = 0; half < 2; ++half, out += 128, low += 64, high += 32, scales += 8) {
    for (int l = 0; l < 32; ++l) {
      const int q[4] = {(low[l] & 0xf) | ((high[l] & 3) << 4), (low[l + 32] & 0xf) | (((high[l] >> 2) & 3) << 4),
                        (low[l] >> 4) | (((high[l] >> 4) & 3) << 4), (low[l + 32] >> 4) | (((high[l] >> 6) & 3) << 4)};
      for (int i = 0; i < 4; ++i) {
        out[l + 32 * i] = d * static_cast<float>(scales[l / 16 + 2 * i]) * static_cast<float>(q[i] - 32);
      }
    }
  }
}

template <typename T>
void widen(const uint8_t* source, int64_t elements, float* out) {
  for (int64_t i = 0; i < elements; ++i) {
    T value;
    std::memcpy(&value, source + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    out[i] = to_float(value);
  }
}

using BlockFunction = void (*)(const uint8_t*, float*);

BlockFunction block_function(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_0:
      return q4_0;
    case WeightFormat::kQ4_1:
      return q4_1;
    case WeightFormat::kQ5_0:
      return q5_0;
    case WeightFormat::kQ5_1:
      return q5_1;
    case WeightFormat::kQ8_0:
      return q8_0;
    case WeightFormat::kQ4_K:
      return q4_k;
    case WeightFormat::kQ5_K:
      return q5_k;
    case WeightFormat::kQ6_K:
      return q6_k;
    default:
      return nullptr;
  }
}

}  // namespace

void dequantize_row(WeightFormat format, const void* source, int64_t elements, float* out) {
  const auto* bytes = static_cast<const uint8_t*>(source);
  switch (format) {
    case WeightFormat::kF32:
      std::memcpy(out, source, static_cast<size_t>(elements) * sizeof(float));
      return;
    case WeightFormat::kF16:
      widen<f16>(bytes, elements, out);
      return;
    case WeightFormat::kBF16:
      widen<bf16>(bytes, elements, out);
      return;
    default:
      break;
  }
  const WeightFormatInfo info = weight_format_info(format);
  TM_ASSERT(elements % info.block_elements == 0, "{} elements of {}", elements, info.name);
  const BlockFunction expand = block_function(format);
  TM_ASSERT(expand != nullptr);
  for (int64_t i = 0; i < elements; i += info.block_elements, bytes += info.block_bytes) expand(bytes, out + i);
}

}  // namespace tokenmill
