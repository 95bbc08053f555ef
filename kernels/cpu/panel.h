#pragma once
#include <cstdint>

#include "kernels/core/dtype.h"

namespace tokenmill::cpu {

/// Columns of one panel; the layout is described in dot_tile-inl.h.
constexpr int64_t kPanelWidth = 16;

/// To be raised when packed bytes change for any weights: part of Ops::weight_layout(), so that older ones that were
/// kept are not used.
constexpr int kLayoutVersion = 2;

constexpr int64_t num_panels(int64_t columns) { return (columns + kPanelWidth - 1) / kPanelWidth; }

/// Elements of one panel of k_count rows.
constexpr int64_t panel_elements(int64_t k_count, DType dtype) {
  return (dtype == DType::kBF16 ? (k_count + 1) / 2 * 2 : k_count) * kPanelWidth;
}

/// Where element (k, column) lies in its panel.
constexpr int64_t panel_index_f32(int64_t k, int64_t column) { return k * kPanelWidth + column; }
constexpr int64_t panel_index_bf16(int64_t k, int64_t column) { return (k / 2 * kPanelWidth + column) * 2 + k % 2; }
template <typename T>
constexpr int64_t panel_index(int64_t k, int64_t column) {
  return sizeof(T) == 2 ? panel_index_bf16(k, column) : panel_index_f32(k, column);
}

}  // namespace tokenmill::cpu
