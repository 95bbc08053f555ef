// The one matrix product of this device: M rows of f32 times P panels of 16 columns.
//
// A panel holds 16 columns of a matrix [K, 16] as the dot product reads them:
//   f32   [K][16]
//   bf16  [ceil(K/2)][16][2]: two consecutive k in one 32-bit lane, so one load and one shift or mask give 8 or 16
//   floats
// Packed weights, key pages and value pages are all such panels.
//
// Every output element has one accumulator that takes its K products in ascending k, one FMA each, whatever M and P
// are: its bits do not depend on the tile it is computed in.
// clang-format off
#if defined(TOKENMILL_CPU_DOT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOKENMILL_CPU_DOT_TILE_INL_H_
#undef TOKENMILL_CPU_DOT_TILE_INL_H_
#else
#define TOKENMILL_CPU_DOT_TILE_INL_H_
#endif
// clang-format on

#include "kernels/cpu/panel.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tokenmill::cpu::HWY_NAMESPACE {

constexpr int kVecsPerPanel = kPanelWidth / kLanes;      // 2 on AVX2, 1 on AVX-512
constexpr int kMaxAccumulators = kLanes == 8 ? 12 : 24;  // of 16 and 32 registers
constexpr int kMaxTileRows = 6;
constexpr int kMaxTilePanels = 8;

/// Whether the accumulators of M rows x P panels stay in registers.
constexpr bool tile_fits(int rows, int panels) { return rows * panels * kVecsPerPanel <= kMaxAccumulators; }

/// The most panels (1, 2, 4 or 8) that a tile of `rows` rows takes at once.
constexpr int best_panels(int rows) {
  int panels = 1;
  while (panels < kMaxTilePanels && tile_fits(rows, 2 * panels)) panels *= 2;
  return panels;
}

/// acc[m][v] += rows[m][k] * w[v]: one broadcast feeds the FMAs of a panel.
template <int M, int P>
HWY_INLINE void multiply(const float* const* rows, int64_t k, const VecF (&w)[kVecsPerPanel],
                         VecF (&acc)[M][P][kVecsPerPanel], int p) {
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
    const VecF a = set(rows[m][k]);
#pragma GCC unroll 2
    for (int v = 0; v < kVecsPerPanel; ++v) acc[m][p][v] = hn::MulAdd(a, w[v], acc[m][p][v]);
  }
}

template <int M, int P>
HWY_INLINE void accumulate(const float* const* rows, const float* const* panels, int64_t k_count,
                           VecF (&acc)[M][P][kVecsPerPanel]) {
  for (int64_t k = 0; k < k_count; ++k) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      VecF w[kVecsPerPanel];
#pragma GCC unroll 2
      for (int v = 0; v < kVecsPerPanel; ++v) w[v] = load(panels[p] + k * kPanelWidth + v * kLanes);
      multiply<M, P>(rows, k, w, acc, p);
    }
  }
}

template <int M, int P>
HWY_INLINE void accumulate(const float* const* rows, const bf16* const* panels, int64_t k_count,
                           VecF (&acc)[M][P][kVecsPerPanel]) {
  const TagU u;
  const TagF f;
  const auto high = hn::Set(u, 0xffff0000u);
  const int64_t pairs = k_count / 2;
  for (int64_t pair = 0; pair < pairs; ++pair) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const auto* lanes = reinterpret_cast<const uint32_t*>(panels[p]) + pair * kPanelWidth;
      VecF w[kVecsPerPanel];
#pragma GCC unroll 2
      for (int v = 0; v < kVecsPerPanel; ++v) {
        w[v] = hn::BitCast(f, hn::ShiftLeft<16>(hn::LoadU(u, lanes + v * kLanes)));
      }
      multiply<M, P>(rows, 2 * pair, w, acc, p);
#pragma GCC unroll 2
      for (int v = 0; v < kVecsPerPanel; ++v) w[v] = hn::BitCast(f, hn::And(high, hn::LoadU(u, lanes + v * kLanes)));
      multiply<M, P>(rows, 2 * pair + 1, w, acc, p);
    }
  }
  if (k_count % 2 == 0) return;
  // The upper half of the last pair may hold anything, NaN included: it is not read as a number.
  for (int p = 0; p < P; ++p) {
    for (int v = 0; v < kVecsPerPanel; ++v) {
      const auto* lanes = reinterpret_cast<const uint32_t*>(panels[p]) + pairs * kPanelWidth + v * kLanes;
      const VecF w0 = hn::BitCast(f, hn::ShiftLeft<16>(hn::LoadU(u, lanes)));
      for (int m = 0; m < M; ++m) acc[m][p][v] = hn::MulAdd(set(rows[m][2 * pairs]), w0, acc[m][p][v]);
    }
  }
}

/// c[m][p * 16 + i] (+)= sum over k of rows[m][k] * panels[p][k][i]; c has row stride ldc. kAdd: start from c.
template <int M, int P, bool kAdd, typename W>
HWY_NOINLINE void dot_tile(const float* const* rows, const W* const* panels, int64_t k_count, float* c, int64_t ldc) {
  VecF acc[M][P][kVecsPerPanel];
  const float* a[M];
  const W* w[P];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) w[p] = panels[p];
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
    a[m] = rows[m];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 2
      for (int v = 0; v < kVecsPerPanel; ++v) {
        acc[m][p][v] = kAdd ? load(c + m * ldc + p * kPanelWidth + v * kLanes) : zero();
      }
    }
  }
  accumulate<M, P>(a, w, k_count, acc);
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 2
      for (int v = 0; v < kVecsPerPanel; ++v) store(acc[m][p][v], c + m * ldc + p * kPanelWidth + v * kLanes);
    }
  }
}

/// dot_tile for 1 <= rows <= 6 and panels of 1, 2, 4 or 8 with tile_fits(rows, panels).
template <int M, bool kAdd, typename W>
HWY_INLINE void dot_tile_rows(int panels, const float* const* rows, const W* const* panel, int64_t k_count, float* c,
                              int64_t ldc) {
  if constexpr (tile_fits(M, 8)) {
    if (panels == 8) return dot_tile<M, 8, kAdd>(rows, panel, k_count, c, ldc);
  }
  if constexpr (tile_fits(M, 4)) {
    if (panels == 4) return dot_tile<M, 4, kAdd>(rows, panel, k_count, c, ldc);
  }
  if constexpr (tile_fits(M, 2)) {
    if (panels == 2) return dot_tile<M, 2, kAdd>(rows, panel, k_count, c, ldc);
  }
  dot_tile<M, 1, kAdd>(rows, panel, k_count, c, ldc);
}

template <bool kAdd, typename W>
HWY_INLINE void dot_tile_any(int num_rows, int panels, const float* const* rows, const W* const* panel, int64_t k_count,
                             float* c, int64_t ldc) {
  switch (num_rows) {
    case 1:
      return dot_tile_rows<1, kAdd>(panels, rows, panel, k_count, c, ldc);
    case 2:
      return dot_tile_rows<2, kAdd>(panels, rows, panel, k_count, c, ldc);
    case 3:
      return dot_tile_rows<3, kAdd>(panels, rows, panel, k_count, c, ldc);
    case 4:
      return dot_tile_rows<4, kAdd>(panels, rows, panel, k_count, c, ldc);
    case 5:
      return dot_tile_rows<5, kAdd>(panels, rows, panel, k_count, c, ldc);
    default:
      return dot_tile_rows<6, kAdd>(panels, rows, panel, k_count, c, ldc);
  }
}

}  // namespace tokenmill::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard
