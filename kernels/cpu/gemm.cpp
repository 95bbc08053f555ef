// Work:   each thread owns a range of 16-column panels; per block of rows and group of panels, K is cut into blocks
// whose
//         weights stay in L1 while all row tiles pass over them; partial sums wait in f32 scratch (same additions, same
//         order). Few rows: several panels at once, so that enough FMA chains run.
// Bytes:  weights once per 192 rows, activations from L2.
// Limits: any rows, columns and K. Measured: kernels/README.md.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cpp"
#include "kernels/cpu/gemm.h"

#include "hwy/foreach_target.h"
#include "kernels/cpu/dot_tile-inl.h"
#include "kernels/cpu/target.h"

HWY_BEFORE_NAMESPACE();
namespace tokenmill::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kWeightBlockBytes = 20 << 10;  // of the 32 KiB L1; the rest holds the rows of one tile

template <typename Out, typename Bias>
void finish_row(const float* c, int64_t count, const Bias* bias, const Out* residual, Out* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    VecF x = load(c + i);
    if (bias != nullptr) x = hn::Add(x, load(bias + i));
    if (residual != nullptr) x = hn::Add(x, load(residual + i));
    store(x, out + i);
  }
  if (i < count) {
    VecF x = load_n(c + i, count - i);
    if (bias != nullptr) x = hn::Add(x, load_n(bias + i, count - i));
    if (residual != nullptr) x = hn::Add(x, load_n(residual + i, count - i));
    store_n(x, out + i, count - i);
  }
}

template <typename Out, typename Bias>
void finish_rows(const EpilogueCall& call) {
  const Bias* bias = call.bias.defined() ? static_cast<const Bias*>(call.bias.data()) + call.column_begin : nullptr;
  for (int64_t r = 0; r < call.rows; ++r) {
    const int64_t row = call.row_begin + r;
    Out* out = static_cast<Out*>(call.out.data()) + row * call.out.row_stride() + call.column_begin;
    const Out* residual = nullptr;
    if (call.residual.defined()) {
      residual = static_cast<const Out*>(call.residual.data()) + row * call.residual.row_stride() + call.column_begin;
    }
    finish_row(call.c + r * call.ldc, call.columns, bias, residual, out);
  }
}

void epilogue(const EpilogueCall& call) {
  const bool wide_bias = !call.bias.defined() || call.bias.dtype() == DType::kF32;
  if (call.out.dtype() == DType::kF32) {
    if (wide_bias) {
      finish_rows<float, float>(call);
    } else {
      finish_rows<float, bf16>(call);
    }
  } else {
    if (wide_bias) {
      finish_rows<bf16, float>(call);
    } else {
      finish_rows<bf16, bf16>(call);
    }
  }
}

/// One K block of one group of panels for all row tiles of a row block.
template <typename W>
void k_block(const GemmCall& call, int64_t row_begin, int64_t row_end, int64_t k_begin, int64_t k_count, int panels,
             const W* const* panel, float* c) {
  const int64_t ldc = panels * kPanelWidth;
  const float* rows[kMaxTileRows];
  const int64_t num_rows = row_end - row_begin, tiles = (num_rows + kMaxTileRows - 1) / kMaxTileRows;
  for (int64_t t = 0; t < tiles; ++t) {  // of equal height: 8 rows are 4 + 4, not 6 + 2
    const int64_t r = row_begin + num_rows * t / tiles;
    const int count = static_cast<int>(row_begin + num_rows * (t + 1) / tiles - r);
    for (int i = 0; i < count; ++i) rows[i] = call.a + (r + i) * call.lda + k_begin;
    float* tile = c + (r - row_begin) * ldc;
    if (k_begin == 0) {
      dot_tile_any<false>(count, panels, rows, panel, k_count, tile, ldc);
    } else {
      dot_tile_any<true>(count, panels, rows, panel, k_count, tile, ldc);
    }
  }
}

template <typename W>
void panels_of(const GemmCall& call, int64_t panel_begin, int64_t panel_end, float* scratch) {
  const int64_t stride = panel_elements(call.k_count, call.weight_dtype);
  const W* weights = reinterpret_cast<const W*>(call.panels);
  for (int64_t row = 0; row < call.rows; row += kGemmRowBlock) {
    const int64_t row_end = HWY_MIN(call.rows, row + kGemmRowBlock);
    const int64_t tiles = (row_end - row + kMaxTileRows - 1) / kMaxTileRows;
    const int most = best_panels(static_cast<int>((row_end - row + tiles - 1) / tiles));
    for (int64_t p = panel_begin; p < panel_end;) {
      int panels = most;
      while (panels > panel_end - p) panels /= 2;
      const int64_t bytes_per_k = panels * kPanelWidth * static_cast<int64_t>(sizeof(W));
      const int64_t block = row_end - row <= kMaxTileRows
                                ? call.k_count
                                : HWY_MAX(int64_t{32}, kWeightBlockBytes / bytes_per_k / 32 * 32);
      for (int64_t k = 0; k < call.k_count; k += block) {
        const W* panel[kMaxTilePanels];
        for (int i = 0; i < panels; ++i) panel[i] = weights + (p + i) * stride + k * kPanelWidth;
        k_block(call, row, row_end, k, HWY_MIN(block, call.k_count - k), panels, panel, scratch);
      }
      const int64_t column = p * kPanelWidth;
      epilogue({.c = scratch,
                .ldc = panels * kPanelWidth,
                .rows = row_end - row,
                .column_begin = column,
                .columns = HWY_MIN(panels * kPanelWidth, call.columns - column),
                .out = call.out,
                .bias = call.bias,
                .residual = call.residual,
                .row_begin = row});
      p += panels;
    }
  }
}

void panels(const GemmCall& call, int64_t panel_begin, int64_t panel_end, float* scratch) {
  if (call.weight_dtype == DType::kBF16) {
    panels_of<bf16>(call, panel_begin, panel_end, scratch);
  } else {
    panels_of<float>(call, panel_begin, panel_end, scratch);
  }
}

void widen_rows(const bf16* a, int64_t lda, int64_t rows, int64_t k_count, float* out, int64_t ldo) {
  for (int64_t r = 0; r < rows; ++r) {
    int64_t k = 0;
    for (; k + kLanes <= k_count; k += kLanes) store(load(a + r * lda + k), out + r * ldo + k);
    if (k < k_count) store_n(load_n(a + r * lda + k, k_count - k), out + r * ldo + k, k_count - k);
  }
}

}  // namespace

extern const GemmKernels kGemm;
const GemmKernels kGemm = {panels, epilogue, widen_rows};

}  // namespace tokenmill::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tokenmill::cpu {
const GemmKernels& gemm_kernels(Isa isa) { return TM_CPU_TABLE(kGemm, isa); }
}  // namespace tokenmill::cpu
#endif
