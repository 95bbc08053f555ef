#pragma once
// wgmma (sm_90a): D [64, n] (+)= A [64, 16] B [16, n] by a warpgroup, behind its back. Order of calls, by all 128
// threads:
//   wgmma_fence(); wgmma_...(d, ...); ...; wgmma_commit(); ...; wgmma_wait<0>(); and only then d is read or written.
// Thread t of the warpgroup holds d[i] = D[16 * (t / 32) + t % 32 / 4 + 8 * (i / 2 % 2)][8 * (i / 4) + 2 * (t % 4) + i
// % 2]. A in registers is the A of mma.m16n8k16 for rows 16 * (t / 32) and up. Writers of the operands pass
// fence_proxy_async and a barrier first.
//
// Operands in shared memory are tiles of 128-byte rows, swizzled (128 bytes) and 1024-byte aligned, as a tensor map
// with CU_TENSOR_MAP_SWIZZLE_128B loads them: 16-byte unit u of row r lies at unit u ^ (r % 8). A row holds
//   not transposed: 64 elements of K of one row of A (column of B); stride_bytes = from 8 rows to the next 8 (1024 when
//   packed);
//                   the next 16 of K are 32 bytes further
//   transposed:     64 elements of M (N) of one k; stride_bytes = from 8 k to the next 8, leading_bytes = from 64 of M
//   (N) to
//                   the next 64
#include "kernels/cuda/ptx_base.h"
#ifdef TOKENMILL_CUDA_EMULATED
#include "kernels/emulation/block/shared_memory.h"
#include "kernels/emulation/block/wgmma.h"
#endif

namespace tokenmill::ptx {

/// The bits of a matrix descriptor with the 128-byte swizzle, but for the address.
__host__ __device__ constexpr uint64_t swizzle128_bits(uint32_t stride_bytes, uint32_t leading_bytes) {
  return static_cast<uint64_t>(1) << 62 | static_cast<uint64_t>(stride_bytes >> 4 & 0x3fff) << 32 |
         static_cast<uint64_t>(leading_bytes >> 4 & 0x3fff) << 16;
}

#ifndef TOKENMILL_CUDA_EMULATED

__device__ __forceinline__ uint64_t swizzle128_descriptor(const void* tile, uint32_t stride_bytes = 1024,
                                                          uint32_t leading_bytes = 16) {
  return swizzle128_bits(stride_bytes, leading_bytes) | (shared_address(tile) >> 4 & 0x3fff);
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits for all groups but the last kPending. Keep it unconditional: under a branch ptxas serialises the products.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// After a wait: reads of the results d stay behind it. The compiler sees no wait in wgmma_wait, only that d was written
/// by the instruction before.
template <int kCount>
__device__ __forceinline__ void settle(float (&d)[kCount]) {
  _Pragma("unroll") for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Operand lists of 8, 16, ... registers.
#define TM_R0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define TM_R1 "%8,%9,%10,%11,%12,%13,%14,%15"
#define TM_R2 "%16,%17,%18,%19,%20,%21,%22,%23"
#define TM_R3 "%24,%25,%26,%27,%28,%29,%30,%31"
#define TM_R4 "%32,%33,%34,%35,%36,%37,%38,%39"
#define TM_R5 "%40,%41,%42,%43,%44,%45,%46,%47"
#define TM_R6 "%48,%49,%50,%51,%52,%53,%54,%55"
#define TM_R7 "%56,%57,%58,%59,%60,%61,%62,%63"
#define TM_R8 "%64,%65,%66,%67,%68,%69,%70,%71"
#define TM_R9 "%72,%73,%74,%75,%76,%77,%78,%79"
#define TM_R10 "%80,%81,%82,%83,%84,%85,%86,%87"
#define TM_R11 "%88,%89,%90,%91,%92,%93,%94,%95"
#define TM_R12 "%96,%97,%98,%99,%100,%101,%102,%103"
#define TM_R13 "%104,%105,%106,%107,%108,%109,%110,%111"
#define TM_R14 "%112,%113,%114,%115,%116,%117,%118,%119"
#define TM_R15 "%120,%121,%122,%123,%124,%125,%126,%127"
#define TM_D(i)                                                                                                       \
  "+f"(d[8 * i]), "+f"(d[8 * i + 1]), "+f"(d[8 * i + 2]), "+f"(d[8 * i + 3]), "+f"(d[8 * i + 4]), "+f"(d[8 * i + 5]), \
      "+f"(d[8 * i + 6]), "+f"(d[8 * i + 7])
#define TM_REGISTERS16 TM_R0
#define TM_OUTPUTS16 TM_D(0)
#define TM_REGISTERS32 TM_R0 "," TM_R1
#define TM_OUTPUTS32 TM_D(0), TM_D(1)
#define TM_REGISTERS64 TM_R0 "," TM_R1 "," TM_R2 "," TM_R3
#define TM_OUTPUTS64 TM_D(0), TM_D(1), TM_D(2), TM_D(3)
#define TM_REGISTERS128 TM_R0 "," TM_R1 "," TM_R2 "," TM_R3 "," TM_R4 "," TM_R5 "," TM_R6 "," TM_R7
#define TM_OUTPUTS128 TM_D(0), TM_D(1), TM_D(2), TM_D(3), TM_D(4), TM_D(5), TM_D(6), TM_D(7)
#define TM_REGISTERS192 \
  TM_R0 "," TM_R1 "," TM_R2 "," TM_R3 "," TM_R4 "," TM_R5 "," TM_R6 "," TM_R7 "," TM_R8 "," TM_R9 "," TM_R10 "," TM_R11
#define TM_OUTPUTS192 \
  TM_D(0), TM_D(1), TM_D(2), TM_D(3), TM_D(4), TM_D(5), TM_D(6), TM_D(7), TM_D(8), TM_D(9), TM_D(10), TM_D(11)
#define TM_REGISTERS256                                                                                      \
  TM_R0 "," TM_R1 "," TM_R2 "," TM_R3 "," TM_R4 "," TM_R5 "," TM_R6 "," TM_R7 "," TM_R8 "," TM_R9 "," TM_R10 \
        "," TM_R11 "," TM_R12 "," TM_R13 "," TM_R14 "," TM_R15
#define TM_OUTPUTS256                                                                                           \
  TM_D(0), TM_D(1), TM_D(2), TM_D(3), TM_D(4), TM_D(5), TM_D(6), TM_D(7), TM_D(8), TM_D(9), TM_D(10), TM_D(11), \
      TM_D(12), TM_D(13), TM_D(14), TM_D(15)
// n, its number, and the numbers of the operands behind D.
#define TM_WGMMA_SHARED(n, type, i0, i1, i2, i3, i4)                                                              \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #i2 ", 0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type \
               "." type " {" TM_REGISTERS##n "}, %" #i0 ", %" #i1 ", p, 1, 1, %" #i3 ", %" #i4 "; }"              \
               : TM_OUTPUTS##n                                                                                    \
               : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kATransposed), "n"(kBTransposed))
#define TM_WGMMA_REGISTERS(n, type, i0, i1, i2, i3, i4, i5, i6)                                                   \
  asm volatile(                                                                                                   \
      "{ .reg .pred p; setp.ne.b32 p, %" #i5 ", 0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type \
      " {" TM_REGISTERS##n "}, {%" #i0 ",%" #i1 ",%" #i2 ",%" #i3 "}, %" #i4 ", p, 1, 1, %" #i6 "; }"             \
      : TM_OUTPUTS##n                                                                                             \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kBTransposed))
#define TM_WGMMA(name, type)                                                                                          \
  template <int kColumns, bool kATransposed = false, bool kBTransposed = false>                                       \
  __device__ __forceinline__ void name(float(&d)[kColumns / 2], uint64_t a, uint64_t b, bool accumulate) {            \
    if constexpr (kColumns == 16) TM_WGMMA_SHARED(16, type, 8, 9, 10, 11, 12);                                        \
    if constexpr (kColumns == 32) TM_WGMMA_SHARED(32, type, 16, 17, 18, 19, 20);                                      \
    if constexpr (kColumns == 64) TM_WGMMA_SHARED(64, type, 32, 33, 34, 35, 36);                                      \
    if constexpr (kColumns == 128) TM_WGMMA_SHARED(128, type, 64, 65, 66, 67, 68);                                    \
    if constexpr (kColumns == 192) TM_WGMMA_SHARED(192, type, 96, 97, 98, 99, 100);                                   \
    if constexpr (kColumns == 256) TM_WGMMA_SHARED(256, type, 128, 129, 130, 131, 132);                               \
    static_assert(TM_WGMMA_HAS(kColumns), "wgmma of 16, 32, 64, 128, 192 or 256 columns");                            \
  }                                                                                                                   \
  template <int kColumns, bool kBTransposed = false>                                                                  \
  __device__ __forceinline__ void name(float(&d)[kColumns / 2], const uint32_t(&a)[4], uint64_t b, bool accumulate) { \
    if constexpr (kColumns == 16) TM_WGMMA_REGISTERS(16, type, 8, 9, 10, 11, 12, 13, 14);                             \
    if constexpr (kColumns == 32) TM_WGMMA_REGISTERS(32, type, 16, 17, 18, 19, 20, 21, 22);                           \
    if constexpr (kColumns == 64) TM_WGMMA_REGISTERS(64, type, 32, 33, 34, 35, 36, 37, 38);                           \
    if constexpr (kColumns == 128) TM_WGMMA_REGISTERS(128, type, 64, 65, 66, 67, 68, 69, 70);                         \
    if constexpr (kColumns == 192) TM_WGMMA_REGISTERS(192, type, 96, 97, 98, 99, 100, 101, 102);                      \
    if constexpr (kColumns == 256) TM_WGMMA_REGISTERS(256, type, 128, 129, 130, 131, 132, 133, 134);                  \
    static_assert(TM_WGMMA_HAS(kColumns), "wgmma of 16, 32, 64, 128, 192 or 256 columns");                            \
  }
#define TM_WGMMA_HAS(n) (n == 16 || n == 32 || n == 64 || n == 128 || n == 192 || n == 256)
/// wgmma_bf16<kColumns, kATransposed, kBTransposed>(d, a_descriptor, b_descriptor, accumulate): D += A B, or D = A B;
/// wgmma_bf16<kColumns, kBTransposed>(d, a_registers, b_descriptor, accumulate): A in registers.
TM_WGMMA(wgmma_bf16, "bf16")
TM_WGMMA(wgmma_f16, "f16")
#undef TM_R0
#undef TM_R1
#undef TM_R2
#undef TM_R3
#undef TM_R4
#undef TM_R5
#undef TM_R6
#undef TM_R7
#undef TM_R8
#undef TM_R9
#undef TM_R10
#undef TM_R11
#undef TM_R12
#undef TM_R13
#undef TM_R14
#undef TM_R15
#undef TM_D
#undef TM_REGISTERS16
#undef TM_OUTPUTS16
#undef TM_REGISTERS32
#undef TM_OUTPUTS32
#undef TM_REGISTERS64
#undef TM_OUTPUTS64
#undef TM_REGISTERS128
#undef TM_OUTPUTS128
#undef TM_REGISTERS192
#undef TM_OUTPUTS192
#undef TM_REGISTERS256
#undef TM_OUTPUTS256
#undef TM_WGMMA_SHARED
#undef TM_WGMMA_REGISTERS
#undef TM_WGMMA
#undef TM_WGMMA_HAS

#else

inline uint64_t swizzle128_descriptor(const void* tile, uint32_t stride_bytes = 1024, uint32_t leading_bytes = 16,
                                      Site site = Site::here()) {
  return swizzle128_bits(stride_bytes, leading_bytes) | (emulation::shared_address(tile, site) >> 4 & 0x3fff);
}
inline void wgmma_fence() { emulation::fence_wgmma(); }
inline void wgmma_commit() { emulation::commit_wgmma(); }
template <int kPending>
inline void wgmma_wait(Site site = Site::here()) {
  emulation::wait_wgmma(kPending, site);
}
template <int kCount>
inline void settle(float (&)[kCount]) {}

#define TM_WGMMA(name, mma_type)                                                                                 \
  template <int kColumns, bool kATransposed = false, bool kBTransposed = false>                                  \
  inline void name(float(&d)[kColumns / 2], uint64_t a, uint64_t b, bool accumulate, Site site = Site::here()) { \
    emulation::start_wgmma(d,                                                                                    \
                           {.type = emulation::MmaType::mma_type,                                                \
                            .n = kColumns,                                                                       \
                            .a = nullptr,                                                                        \
                            .a_descriptor = a,                                                                   \
                            .b_descriptor = b,                                                                   \
                            .a_transposed = kATransposed,                                                        \
                            .b_transposed = kBTransposed,                                                        \
                            .accumulate = accumulate},                                                           \
                           site);                                                                                \
  }                                                                                                              \
  template <int kColumns, bool kBTransposed = false>                                                             \
  inline void name(float(&d)[kColumns / 2], const uint32_t(&a)[4], uint64_t b, bool accumulate,                  \
                   Site site = Site::here()) {                                                                   \
    emulation::start_wgmma(d,                                                                                    \
                           {.type = emulation::MmaType::mma_type,                                                \
                            .n = kColumns,                                                                       \
                            .a = a,                                                                              \
                            .a_descriptor = 0,                                                                   \
                            .b_descriptor = b,                                                                   \
                            .a_transposed = false,                                                               \
                            .b_transposed = kBTransposed,                                                        \
                            .accumulate = accumulate},                                                           \
                           site);                                                                                \
  }
TM_WGMMA(wgmma_bf16, kBf16)
TM_WGMMA(wgmma_f16, kF16)
#undef TM_WGMMA

#endif

}  // namespace tokenmill::ptx
