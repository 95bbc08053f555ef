#pragma once
// Matrix products of one warp and the loads and stores that go with them. With group = lane / 4 and member = lane % 4:
//   C, D (f32 or s32) 16 x 8   register i: row group + 8 * (i / 2), column 2 * member + i % 2
//   A (16-bit) 16 x 16         register i: row group + 8 * (i % 2), columns 2 * member + 8 * (i / 2) and the next
//   B (16-bit) 16 x 8          register i: rows 2 * member + 8 * i and the next, column group
//   A (8-bit) 16 x 32          register i: row group + 8 * (i % 2), columns 4 * member + 16 * (i / 2) and the next
//   three B (8-bit) 32 x 8           register i: rows 4 * member + 16 * i and the next three, column group
// The element with the lower index is in the lower bits.
#include "kernels/cuda/ptx_base.h"
#ifdef TOKENMILL_CUDA_EMULATED
#include "kernels/emulation/block/mma.h"
#endif

namespace tokenmill::ptx {

#ifndef TOKENMILL_CUDA_EMULATED

#define TM_PTX_MMA_F32(name, shape_and_types)                                                                 \
  __device__ __forceinline__ void name(float(&d)[4], const uint32_t(&a)[4], const uint32_t(&b)[2]) {          \
    asm volatile("mma.sync.aligned." shape_and_types " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                             \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                         \
  }
/// d += a b, m16n8k16 (sm_80).
TM_PTX_MMA_F32(mma_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
TM_PTX_MMA_F32(mma_f16, "m16n8k16.row.col.f32.f16.f16.f32")
/// d += a b, m16n8k32 (sm_89).
TM_PTX_MMA_F32(mma_e4m3, "m16n8k32.row.col.f32.e4m3.e4m3.f32")
TM_PTX_MMA_F32(mma_e5m2, "m16n8k32.row.col.f32.e5m2.e5m2.f32")
#undef TM_PTX_MMA_F32

/// d += a b, m16n8k32 of signed bytes (sm_80); sums wrap.
__device__ __forceinline__ void mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Loads kMatrices (1, 2 or 4) of 8 x 8 16-bit elements: lane i gives row i % 8 of matrix i / 8, 16 bytes, 16-byte
/// aligned. Register m gets elements 2 * member and the next of row `group` of matrix m (kTransposed: of column
/// `group`).
template <int kMatrices, bool kTransposed = false>
__device__ __forceinline__ void ldmatrix(uint32_t (&r)[kMatrices], const void* row) {
  static_assert(kMatrices == 1 || kMatrices == 2 || kMatrices == 4, "ldmatrix loads 1, 2 or 4 matrices");
  const uint32_t address = shared_address(row);
  if constexpr (kMatrices == 1 && !kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(address) : "memory");
  } else if constexpr (kMatrices == 1) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(address) : "memory");
  } else if constexpr (kMatrices == 2 && !kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
  } else if constexpr (kMatrices == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
  } else if constexpr (!kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  }
}

/// The other way (sm_90).
template <int kMatrices, bool kTransposed = false>
__device__ __forceinline__ void stmatrix(void* row, const uint32_t (&r)[kMatrices]) {
  static_assert(kMatrices == 1 || kMatrices == 2 || kMatrices == 4, "stmatrix stores 1, 2 or 4 matrices");
  const uint32_t address = shared_address(row);
  if constexpr (kMatrices == 1 && !kTransposed) {
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(address), "r"(r[0]) : "memory");
  } else if constexpr (kMatrices == 1) {
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(address), "r"(r[0]) : "memory");
  } else if constexpr (kMatrices == 2 && !kTransposed) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};" ::"r"(address), "r"(r[0]), "r"(r[1])
                 : "memory");
  } else if constexpr (kMatrices == 2) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(address), "r"(r[0]), "r"(r[1])
                 : "memory");
  } else if constexpr (!kTransposed) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(r[0]), "r"(r[1]),
                 "r"(r[2]), "r"(r[3])
                 : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
  }
}

#else

#define TM_PTX_MMA_F32(name, type)                                                                         \
  inline void name(float(&d)[4], const uint32_t(&a)[4], const uint32_t(&b)[2], Site site = Site::here()) { \
    emulation::mma(emulation::MmaType::type, d, a, b, d, site);                                            \
  }
TM_PTX_MMA_F32(mma_bf16, kBf16)
TM_PTX_MMA_F32(mma_f16, kF16)
TM_PTX_MMA_F32(mma_e4m3, kE4m3)
TM_PTX_MMA_F32(mma_e5m2, kE5m2)
#undef TM_PTX_MMA_F32

inline void mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Site site = Site::here()) {
  emulation::mma_s8(d, a, b, d, site);
}

template <int kMatrices, bool kTransposed = false>
inline void ldmatrix(uint32_t (&r)[kMatrices], const void* row, Site site = Site::here()) {
  static_assert(kMatrices == 1 || kMatrices == 2 || kMatrices == 4, "ldmatrix loads 1, 2 or 4 matrices");
  emulation::load_matrices(r, row, kMatrices, kTransposed, site);
}

template <int kMatrices, bool kTransposed = false>
inline void stmatrix(void* row, const uint32_t (&r)[kMatrices], Site site = Site::here()) {
  static_assert(kMatrices == 1 || kMatrices == 2 || kMatrices == 4, "stmatrix stores 1, 2 or 4 matrices");
  emulation::store_matrices(r, row, kMatrices, kTransposed, site);
}

#endif

}  // namespace tokenmill::ptx
