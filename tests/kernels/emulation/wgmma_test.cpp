// wgmma: operands in swizzled shared memory and in registers, fragments as the PTX manual prints them, and what goes
// wrong.
#include <doctest/doctest.h>

#include <cmath>

#include "kernels/cuda/ptx.h"
#include "tests/support/run_kernel.h"
#include "tests/support/sanitized.h"

using namespace tokenmill;

namespace {

enum class Bug { kNone, kNoWait, kNoFence, kNoBarrier, kOneWarpMissing };

constexpr int kRows = 64, kDepth = 64;

/// Element (r, c) of a tile of 64 columns, rows of 128 bytes: the 16-byte unit c / 8 of row r lies at unit (c / 8) ^ (r
/// % 8).
template <typename T>
__device__ void put_swizzled(T* tile, int r, int c, T value) {
  tile[r * 64 + ((c / 8) ^ (r % 8)) * 8 + c % 8] = value;
}

template <typename T, int kColumns, bool kATransposed, bool kBTransposed>
__device__ void multiply(float (&d)[kColumns / 2], uint64_t a, uint64_t b, bool accumulate) {
  if constexpr (std::is_same_v<T, __half>) {
    ptx::wgmma_f16<kColumns, kATransposed, kBTransposed>(d, a, b, accumulate);
  } else {
    ptx::wgmma_bf16<kColumns, kATransposed, kBTransposed>(d, a, b, accumulate);
  }
}
template <typename T, int kColumns, bool kBTransposed>
__device__ void multiply(float (&d)[kColumns / 2], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  if constexpr (std::is_same_v<T, __half>) {
    ptx::wgmma_f16<kColumns, kBTransposed>(d, a, b, accumulate);
  } else {
    ptx::wgmma_bf16<kColumns, kBTransposed>(d, a, b, accumulate);
  }
}

/// C [64, n] = A [64, 64] B [64, n] + 1. In global memory a is row-major, b is [n, 64] (its transpose, row-major).
template <typename T, int kColumns, bool kARegisters, bool kATransposed, bool kBTransposed>
__global__ void product(float* c, const T* a, const T* b, Bug bug) {
#if GPU_HAS_SM90A
  GPU_DYN_SHARED(bytes);
  T* a_tile = reinterpret_cast<T*>(bytes);
  T* b_tile = a_tile + kRows * kDepth;
  const int t = static_cast<int>(threadIdx.x);
  // Not transposed: rows of the tile are rows of A or columns of B. Transposed: rows are k, in blocks of 64 columns.
  for (int i = t; i < kRows * kDepth; i += 128) {
    const int m = i / kDepth, k = i % kDepth;
    put_swizzled(a_tile, kATransposed ? k : m, kATransposed ? m : k, a[i]);
  }
  for (int i = t; i < kColumns * kDepth; i += 128) {
    const int n = i / kDepth, k = i % kDepth;
    if (kBTransposed) {
      put_swizzled(b_tile + n / 64 * 64 * kDepth, k, n % 64, b[i]);
    } else {
      put_swizzled(b_tile, n, k, b[i]);
    }
  }
  ptx::fence_proxy_async();
  if (bug != Bug::kNoBarrier) __syncthreads();
  float d[kColumns / 2];
  for (float& x : d) x = 1;
#ifdef TOKENMILL_CUDA_EMULATED
  if (bug == Bug::kOneWarpMissing && t >= 96) return;
#endif
#ifdef TOKENMILL_CUDA_EMULATED
  if (bug != Bug::kNoFence)  // on a device fences and waits are unconditional
#endif
    ptx::wgmma_fence();
  for (int k = 0; k < kDepth; k += 16) {
    const uint64_t b_descriptor = kBTransposed ? ptx::swizzle128_descriptor(b_tile + k * 64, 1024, 64 * kDepth * 2)
                                               : ptx::swizzle128_descriptor(b_tile + k);
    if constexpr (kARegisters) {
      uint32_t registers[4];
      for (int r = 0; r < 4; ++r) {  // mma.m16n8k16's A: row group (+ 8), columns 2 * member (+ 8) and the next
        const int row = t / 32 * 16 + t % 32 / 4 + r % 2 * 8, column = k + t % 4 * 2 + r / 2 * 8;
        __builtin_memcpy(&registers[r], static_cast<const void*>(a + row * kDepth + column), 4);
      }
      multiply<T, kColumns, kBTransposed>(d, registers, b_descriptor, true);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();  // the registers are written again
      ptx::wgmma_fence();
    } else {
      const uint64_t a_descriptor =
          kATransposed ? ptx::swizzle128_descriptor(a_tile + k * 64) : ptx::swizzle128_descriptor(a_tile + k);
      multiply<T, kColumns, kATransposed, kBTransposed>(d, a_descriptor, b_descriptor, true);
    }
  }
  ptx::wgmma_commit();
#ifdef TOKENMILL_CUDA_EMULATED
  if (bug != Bug::kNoWait)
#endif
    ptx::wgmma_wait<0>();
  for (int i = 0; i < kColumns / 2; ++i) {  // the manual's D fragment
    const int row = t / 32 * 16 + t % 32 / 4 + 8 * (i / 2 % 2), column = 8 * (i / 4) + 2 * (t % 4) + i % 2;
    c[row * kColumns + column] = d[i];
  }
#ifdef TOKENMILL_CUDA_EMULATED
  if (bug == Bug::kNoWait) ptx::wgmma_wait<0>();
#endif
#else
  __trap();
#endif
}

int number(int i) { return (i * 7 + i / 5) % 9 - 4; }

template <typename T>
T of_number(int x) {
  if constexpr (std::is_same_v<T, __half>) return __float2half(static_cast<float>(x));
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return __float2bfloat16(static_cast<float>(x));
}

struct Outcome {
  std::string error;
  int wrong = 0;
};

template <typename T, int kColumns, bool kARegisters = false, bool kATransposed = false, bool kBTransposed = false>
Outcome run(uint64_t seed, Bug bug = Bug::kNone) {
  test::Shared<T> a(kRows * kDepth), b(kColumns * kDepth);
  test::Shared<float> c(kRows * kColumns);
  for (int i = 0; i < kRows * kDepth; ++i) a[i] = of_number<T>(number(i));
  for (int i = 0; i < kColumns * kDepth; ++i) b[i] = of_number<T>(number(i + 1000));
  Outcome outcome;
  outcome.error = test::run_kernel(product<T, kColumns, kARegisters, kATransposed, kBTransposed>,
                                   {.block = 128, .smem = (kRows + kColumns) * kDepth * sizeof(T)}, seed, c.data(),
                                   a.data(), b.data(), bug);
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < kColumns; ++n) {
      int want = 1;
      for (int k = 0; k < kDepth; ++k) want += number(m * kDepth + k) * number(n * kDepth + k + 1000);
      outcome.wrong += !(c[m * kColumns + n] == static_cast<float>(want));
    }
  }
  return outcome;
}

template <typename T, int kColumns, bool kARegisters = false, bool kATransposed = false, bool kBTransposed = false>
void check() {
  CAPTURE(kColumns);
  const Outcome outcome = run<T, kColumns, kARegisters, kATransposed, kBTransposed>(kColumns % 5);
  CHECK_EQ(outcome.error, "");
  CHECK_EQ(outcome.wrong, 0);
}

/// D = A B, then D += A B of the second depth, each in a group of its own, with one under way while the other is read.
__global__ void two_groups(float* c, const __nv_bfloat16* a, const __nv_bfloat16* b) {
#if GPU_HAS_SM90A
  GPU_DYN_SHARED(bytes);
  auto* a_tile = reinterpret_cast<__nv_bfloat16*>(bytes);
  auto* b_tile = a_tile + kRows * kDepth;
  const int t = static_cast<int>(threadIdx.x);
  for (int i = t; i < kRows * kDepth; i += 128) put_swizzled(a_tile, i / kDepth, i % kDepth, a[i]);
  for (int i = t; i < 16 * kDepth; i += 128) put_swizzled(b_tile, i / kDepth, i % kDepth, b[i]);
  ptx::fence_proxy_async();
  __syncthreads();
  float first[8], second[8];  // neither is initialised: D = A B
  ptx::wgmma_fence();
  ptx::wgmma_bf16<16>(first, ptx::swizzle128_descriptor(a_tile), ptx::swizzle128_descriptor(b_tile), false);
  ptx::wgmma_commit();
  ptx::wgmma_bf16<16>(second, ptx::swizzle128_descriptor(a_tile + 16), ptx::swizzle128_descriptor(b_tile + 16), false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<1>();
  for (int i = 0; i < 8; ++i) c[t * 16 + i] = first[i];
#ifdef TOKENMILL_CUDA_EMULATED
  if (!std::isnan(second[0])) __trap();  // still under way
#endif
  ptx::wgmma_wait<0>();
  for (int i = 0; i < 8; ++i) c[t * 16 + 8 + i] = second[i];
#else
  __trap();
#endif
}

}  // namespace

TEST_CASE("wgmma multiplies tiles with the 128-byte swizzle" * doctest::skip(test::lacks_capability(90))) {
  check<__nv_bfloat16, 16>();
  check<__nv_bfloat16, 32>();
  check<__nv_bfloat16, 64>();
  check<__nv_bfloat16, 128>();
  check<__nv_bfloat16, 192>();
  check<__nv_bfloat16, 256>();
  check<__half, 64>();
}

TEST_CASE("wgmma takes operands whose contiguous dimension is not K" * doctest::skip(test::lacks_capability(90))) {
  check<__nv_bfloat16, 64, false, true, false>();
  check<__nv_bfloat16, 64, false, false, true>();
  check<__nv_bfloat16, 128, false, true, true>();
  check<__half, 256, false, false, true>();
}

TEST_CASE("wgmma takes A from registers" * doctest::skip(test::lacks_capability(90))) {
  check<__nv_bfloat16, 16, true>();
  check<__nv_bfloat16, 128, true, false, true>();
  check<__half, 64, true>();
}

TEST_CASE("wgmma groups complete in order, each when it is waited for" * doctest::skip(test::lacks_capability(90))) {
  for (const uint64_t seed : test::kSeeds) {
    test::Shared<__nv_bfloat16> a(kRows * kDepth), b(16 * kDepth);
    test::Shared<float> c(128 * 16);
    for (size_t i = 0; i < a.size(); ++i) a[i] = of_number<__nv_bfloat16>(number(static_cast<int>(i)));
    for (size_t i = 0; i < b.size(); ++i) b[i] = of_number<__nv_bfloat16>(number(static_cast<int>(i) + 1000));
    REQUIRE_EQ(test::run_kernel(two_groups, {.block = 128, .smem = (kRows + 16) * kDepth * 2}, seed, c.data(), a.data(),
                                b.data()),
               "");
    for (int t = 0; t < 128; ++t) {
      for (int i = 0; i < 16; ++i) {
        const int row = t / 32 * 16 + t % 32 / 4 + 8 * (i % 8 / 2 % 2), column = 8 * (i % 8 / 4) + 2 * (t % 4) + i % 2;
        int want = 0;
        for (int k = i / 8 * 16; k < i / 8 * 16 + 16; ++k)
          want += number(row * kDepth + k) * number(column * kDepth + k + 1000);
        CHECK_EQ(c[t * 16 + i], static_cast<float>(want));
      }
    }
  }
}

#ifdef TOKENMILL_CUDA_EMULATED
TEST_CASE("a forgotten wgmma wait leaves NaN") {
  for (const uint64_t seed : test::kSeeds) {
    const Outcome outcome = run<__nv_bfloat16, 16>(seed, Bug::kNoWait);
    CHECK_EQ(outcome.error, "");
    CHECK_EQ(outcome.wrong, kRows * 16);
  }
}

TEST_CASE("a missing wgmma.fence or warp is an error") {
  for (const uint64_t seed : test::kSeeds) {
    CHECK_EQ(test::unless_found("wgmma without a wgmma.fence", run<__nv_bfloat16, 16>(seed, Bug::kNoFence).error), "");
    CHECK_EQ(test::unless_found("deadlock: 96 threads wait for wgmma",
                                run<__nv_bfloat16, 16>(seed, Bug::kOneWarpMissing).error),
             "");
  }
}
#endif
