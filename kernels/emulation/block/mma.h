#pragma once
// mma.sync, ldmatrix and stmatrix as kernels/cuda/ptx.h reaches them: collectives of a whole warp.
#include <cstdint>

#include "kernels/emulation/block/site.h"

namespace tokenmill::emulation {

enum class MmaType { kBf16, kF16, kE4m3, kE5m2 };

/// D = A B + C: m16n8k16 for 16-bit types, m16n8k32 for 8-bit ones; A row-major, B column-major, C and D f32. d may be
/// c. Products are exact and added in ascending k in f32; the device rounds otherwise.
void mma(MmaType type, float* d, const uint32_t* a, const uint32_t* b, const float* c, Site site);

/// m16n8k32 of signed bytes, C and D s32 (wraps).
void mma_s8(int32_t* d, const uint32_t* a, const uint32_t* b, const int32_t* c, Site site);

/// ldmatrix.m8n8.b16: 1, 2 or 4 matrices; lane i's `row` is row i % 8 of matrix i / 8.
void load_matrices(uint32_t* registers, const void* row, int num_matrices, bool transposed, Site site);

/// stmatrix.m8n8.b16, the other way.
void store_matrices(const uint32_t* registers, void* row, int num_matrices, bool transposed, Site site);

}  // namespace tokenmill::emulation
