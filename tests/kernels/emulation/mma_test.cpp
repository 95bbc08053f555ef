// mma.sync, ldmatrix and stmatrix: fragment layouts as the PTX manual prints them (section "Matrix Fragments for
// mma.m16n8k16 / m16n8k32 / Warp-level matrix load"), not as the emulator has them.
#include <doctest/doctest.h>

#include <array>
#include <cmath>

#include "kernels/cuda/ptx.h"
#include "tests/support/run_kernel.h"
#ifdef TOKENMILL_CUDA_EMULATED
#include "kernels/emulation/block/number_formats.h"
#endif

using namespace tokenmill;

namespace {

// The manual's formulas: row and column of element i of a lane's fragment.
struct Place {
  int row, column;
};
__host__ __device__ Place a_16bit(int lane, int i) {
  const int group = lane >> 2, member = lane % 4;
  return {(0 <= i && i < 2) || (4 <= i && i < 6) ? group : group + 8,
          i < 4 ? member * 2 + (i & 1) : member * 2 + (i & 1) + 8};
}
__host__ __device__ Place b_16bit(int lane, int i) {
  const int group = lane >> 2, member = lane % 4;
  return {i < 2 ? member * 2 + (i & 1) : member * 2 + (i & 1) + 8, group};
}
__host__ __device__ Place a_8bit(int lane, int i) {
  const int group = lane >> 2, member = lane % 4;
  return {(0 <= i && i < 4) || (8 <= i && i < 12) ? group : group + 8,
          i < 8 ? member * 4 + (i & 3) : member * 4 + (i & 3) + 16};
}
__host__ __device__ Place b_8bit(int lane, int i) {
  const int group = lane >> 2, member = lane % 4;
  return {i < 4 ? member * 4 + (i & 3) : member * 4 + (i & 3) + 16, group};
}
__host__ __device__ Place c_f32(int lane, int i) {
  const int group = lane >> 2, member = lane % 4;
  return {i < 2 ? group : group + 8, member * 2 + (i & 1)};
}

enum class Kind { kBf16, kF16, kE4m3, kE5m2, kS8 };
__host__ __device__ constexpr bool is_16bit(Kind kind) { return kind == Kind::kBf16 || kind == Kind::kF16; }

/// One product; matrices of element bits, A [16, K], B [K, 8], C and D [16, 8].
template <Kind kKind, typename Bits, typename Sum>
__global__ void multiply(Sum* d, const Bits* a, const Bits* b, const Sum* c) {
  constexpr int kPerRegister = 4 / sizeof(Bits), kDepth = 8 * kPerRegister;
  const int lane = static_cast<int>(threadIdx.x);
  uint32_t a_registers[4] = {}, b_registers[2] = {};
  for (int i = 0; i < 4 * kPerRegister; ++i) {
    const Place p = is_16bit(kKind) ? a_16bit(lane, i) : a_8bit(lane, i);
    a_registers[i / kPerRegister] |= static_cast<uint32_t>(a[p.row * kDepth + p.column])
                                     << (8 * sizeof(Bits) * (i % kPerRegister));
  }
  for (int i = 0; i < 2 * kPerRegister; ++i) {
    const Place p = is_16bit(kKind) ? b_16bit(lane, i) : b_8bit(lane, i);
    b_registers[i / kPerRegister] |= static_cast<uint32_t>(b[p.row * 8 + p.column])
                                     << (8 * sizeof(Bits) * (i % kPerRegister));
  }
  Sum sum[4];
  for (int i = 0; i < 4; ++i) sum[i] = c[c_f32(lane, i).row * 8 + c_f32(lane, i).column];
  if constexpr (kKind == Kind::kBf16) ptx::mma_bf16(sum, a_registers, b_registers);
  if constexpr (kKind == Kind::kF16) ptx::mma_f16(sum, a_registers, b_registers);
#if defined(TOKENMILL_CUDA_EMULATED) || __CUDA_ARCH__ >= 890
  if constexpr (kKind == Kind::kE4m3) ptx::mma_e4m3(sum, a_registers, b_registers);
  if constexpr (kKind == Kind::kE5m2) ptx::mma_e5m2(sum, a_registers, b_registers);
#endif
  if constexpr (kKind == Kind::kS8) ptx::mma_s8(sum, a_registers, b_registers);
  for (int i = 0; i < 4; ++i) d[c_f32(lane, i).row * 8 + c_f32(lane, i).column] = sum[i];
}

/// Small whole numbers: every product and sum is exact in every format.
int number(int i) { return (i * 7 + i / 5) % 9 - 4; }

template <typename Bits, typename Number>
Bits bits_of(Number number) {
  Bits bits;
  static_assert(sizeof number == sizeof bits);
  __builtin_memcpy(&bits, static_cast<const void*>(&number), sizeof bits);
  return bits;
}

template <Kind kKind, typename Bits, typename Sum, typename ToBits>
void check_product(ToBits to_bits) {
  constexpr int kDepth = 32 / sizeof(Bits);
  for (const uint64_t seed : test::kSeeds) {
    test::Shared<Bits> a(16 * kDepth), b(kDepth * 8);
    test::Shared<Sum> c(128), d(128);
    for (size_t i = 0; i < a.size(); ++i) a[i] = to_bits(number(static_cast<int>(i)));
    for (size_t i = 0; i < b.size(); ++i) b[i] = to_bits(number(static_cast<int>(i) + 1000));
    for (int i = 0; i < 128; ++i) c[i] = static_cast<Sum>(i - 60);
    REQUIRE_EQ(test::run_kernel(multiply<kKind, Bits, Sum>, {}, seed, d.data(), a.data(), b.data(), c.data()), "");
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 8; ++n) {
        int want = m * 8 + n - 60;
        for (int k = 0; k < kDepth; ++k) want += number(m * kDepth + k) * number(k * 8 + n + 1000);
        CAPTURE(m);
        CAPTURE(n);
        CHECK_EQ(d[m * 8 + n], static_cast<Sum>(want));
      }
    }
  }
}

/// Loads matrices of the numbers 0 to 255 whose rows lie 48 bytes apart, in a twisted order of rows.
template <int kMatrices, bool kTransposed>
__global__ void load_matrices(uint16_t* out) {
  struct __align__(16) Tile {
    uint16_t rows[32][24];
  };
  GPU_SHARED(Tile, tile);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = 0; i < 8; ++i) tile.rows[lane][i] = static_cast<uint16_t>(lane * 8 + i);
  __syncwarp();
  uint32_t registers[kMatrices];
  ptx::ldmatrix<kMatrices, kTransposed>(registers, tile.rows[lane ^ 5]);
  for (int m = 0; m < kMatrices; ++m) {
    out[(m * 32 + lane) * 2] = static_cast<uint16_t>(registers[m] & 0xffff);
    out[(m * 32 + lane) * 2 + 1] = static_cast<uint16_t>(registers[m] >> 16);
  }
}

template <int kMatrices, bool kTransposed>
void check_load() {
  for (const uint64_t seed : test::kSeeds) {
    test::Shared<uint16_t> out(kMatrices * 64);
    REQUIRE_EQ(test::run_kernel(load_matrices<kMatrices, kTransposed>, {}, seed, out.data()), "");
    for (int m = 0; m < kMatrices; ++m) {
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 2; ++i) {
          // Thread T holds elements 2 * (T % 4) and the next of row T / 4; .trans: of column T / 4. Row r of matrix m
          // is what thread 8 * m + r points to.
          const int row = kTransposed ? lane % 4 * 2 + i : lane / 4, column = kTransposed ? lane / 4 : lane % 4 * 2 + i;
          CHECK_EQ(out[(m * 32 + lane) * 2 + i], ((8 * m + row) ^ 5) * 8 + column);
        }
      }
    }
  }
}

template <int kMatrices, bool kTransposed>
__global__ void load_and_store(uint16_t* out) {
  struct __align__(16) Tile {
    uint16_t rows[32][8];
  };
  GPU_SHARED(Tile, from);
  GPU_SHARED(Tile, to);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = 0; i < 8; ++i) from.rows[lane][i] = static_cast<uint16_t>(lane * 8 + i);
  for (int i = 0; i < 8; ++i) to.rows[lane][i] = 0;
  __syncwarp();
  uint32_t registers[kMatrices];
  ptx::ldmatrix<kMatrices>(registers, from.rows[lane]);
#if defined(TOKENMILL_CUDA_EMULATED) || __CUDA_ARCH__ >= 900
  ptx::stmatrix<kMatrices, kTransposed>(to.rows[lane], registers);
#endif
  __syncwarp();
  for (int i = 0; i < 8; ++i) out[lane * 8 + i] = to.rows[lane][i];
}

template <int kMatrices, bool kTransposed>
void check_store() {
  test::Shared<uint16_t> out(256);
  REQUIRE_EQ(test::run_kernel(load_and_store<kMatrices, kTransposed>, {}, 2, out.data()), "");
  for (int r = 0; r < 32; ++r) {
    for (int c = 0; c < 8; ++c) {
      const int stored = kTransposed ? (r / 8 * 8 + c) * 8 + r % 8 : r * 8 + c;
      CHECK_EQ(out[r * 8 + c], r < 8 * kMatrices ? stored : 0);
    }
  }
}

#ifdef TOKENMILL_CUDA_EMULATED
__global__ void load_misaligned() {
  struct __align__(16) Tile {
    uint16_t rows[32][12];
  };
  GPU_SHARED(Tile, tile);
  uint32_t registers[4];
  ptx::ldmatrix<4>(registers, tile.rows[threadIdx.x]);
}
__global__ void load_from_global(const uint16_t* rows) {
  uint32_t registers[4];
  ptx::ldmatrix<4>(registers, rows + threadIdx.x * 8);
}
__global__ void multiply_in_half_a_warp() {
  float d[4] = {};
  const uint32_t a[4] = {}, b[2] = {};
  if (threadIdx.x < 16) ptx::mma_bf16(d, a, b);
}
#endif

}  // namespace

TEST_CASE("mma.m16n8k16 multiplies fragments laid out as the PTX manual says" *
          doctest::skip(test::lacks_capability(80))) {
  check_product<Kind::kBf16, uint16_t, float>(
      [](int x) { return bits_of<uint16_t>(__float2bfloat16(static_cast<float>(x))); });
  check_product<Kind::kF16, uint16_t, float>(
      [](int x) { return bits_of<uint16_t>(__float2half(static_cast<float>(x))); });
}

TEST_CASE("mma.m16n8k32 multiplies fragments laid out as the PTX manual says" *
          doctest::skip(test::lacks_capability(89))) {
  check_product<Kind::kE4m3, uint8_t, float>(
      [](int x) { return bits_of<uint8_t>(__nv_fp8_e4m3(static_cast<float>(x))); });
  check_product<Kind::kE5m2, uint8_t, float>(
      [](int x) { return bits_of<uint8_t>(__nv_fp8_e5m2(static_cast<float>(x))); });
  check_product<Kind::kS8, uint8_t, int32_t>([](int x) { return static_cast<uint8_t>(x); });
}

TEST_CASE("ldmatrix hands out matrices as the PTX manual says" * doctest::skip(test::lacks_capability(80))) {
  check_load<1, false>();
  check_load<2, false>();
  check_load<4, false>();
  check_load<1, true>();
  check_load<2, true>();
  check_load<4, true>();
}

TEST_CASE("stmatrix undoes ldmatrix, or transposes what it loaded" * doctest::skip(test::lacks_capability(90))) {
  check_store<1, false>();
  check_store<2, false>();
  check_store<4, false>();
  check_store<1, true>();
  check_store<2, true>();
  check_store<4, true>();
}

#ifdef TOKENMILL_CUDA_EMULATED
TEST_CASE("the bits of small floats mean what NVIDIA's conversions say") {
  const auto same = [](float got, float want) { return got == want || (std::isnan(got) && std::isnan(want)); };
  for (unsigned bits = 0; bits < 65536; ++bits) {
    __half h;
    __nv_bfloat16 b;
    const auto u = static_cast<uint16_t>(bits);
    __builtin_memcpy(static_cast<void*>(&h), &u, 2);
    __builtin_memcpy(static_cast<void*>(&b), &u, 2);
    CHECK(same(emulation::from_f16(u), __half2float(h)));
    CHECK(same(emulation::from_bf16(u), __bfloat162float(b)));
  }
  for (unsigned bits = 0; bits < 256; ++bits) {
    __nv_fp8_e4m3 e4;
    __nv_fp8_e5m2 e5;
    e4.__x = e5.__x = static_cast<uint8_t>(bits);
    CHECK(same(emulation::from_e4m3(static_cast<uint8_t>(bits)), static_cast<float>(e4)));
    CHECK(same(emulation::from_e5m2(static_cast<uint8_t>(bits)), static_cast<float>(e5)));
  }
}

TEST_CASE("misuse of matrix instructions is an error") {
  test::Shared<uint16_t> rows(256);
  CHECK_EQ(test::unless_found("ldmatrix: the shared address is not a multiple of 16",
                              test::run_kernel(load_misaligned, {}, 0)),
           "");
  CHECK_EQ(test::unless_found("ldmatrix: 16 bytes are not inside one shared array",
                              test::run_kernel(load_from_global, {}, 0, rows.data())),
           "");
  CHECK_EQ(test::unless_found("exited", test::run_kernel(multiply_in_half_a_warp, {}, 0)), "");
}
#endif
