// Device functions that the emulator defines itself: integers by their definition, floats against the C library.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/support/run_kernel.h"

using namespace tokenmill;

namespace {

__global__ void add_from_all_threads(int* i, float* f, double* d, unsigned long long* u, __nv_bfloat162* h, int* bits) {
  const int t = static_cast<int>(threadIdx.x);
  atomicAdd(i, t);
  atomicAdd(f, 0.5f);
  atomicAdd(d, 0.25);
  atomicAdd(u, 1ull << 33);
  atomicAdd(h, __floats2bfloat162_rn(1, -1));
  atomicMax(bits, t);
  atomicMin(bits + 1, t);
  atomicOr(bits + 2, 1 << t % 8);
  atomicAnd(bits + 3, ~(1 << t % 4));
  atomicXor(bits + 4, t);
  if (atomicCAS(bits + 5, 0, t + 1) == 0) atomicExch(bits + 6, t + 1);
}

template <typename Half>
void check_half_functions(float tolerance) {
  const auto half = [](float x) { return emulation::rounded<Half>(x); };
  for (const float x : {0.25f, 0.5f, 1.5f, 3.0f}) {
    CHECK_EQ(emulation::to_f32(hexp(half(x))), doctest::Approx(std::exp(x)).epsilon(tolerance));
    CHECK_EQ(emulation::to_f32(hexp2(half(x))), doctest::Approx(std::exp2(x)).epsilon(tolerance));
    CHECK_EQ(emulation::to_f32(hlog(half(x))), doctest::Approx(std::log(x)).epsilon(tolerance));
    CHECK_EQ(emulation::to_f32(hsqrt(half(x))), doctest::Approx(std::sqrt(x)).epsilon(tolerance));
    CHECK_EQ(emulation::to_f32(hrsqrt(half(x))), doctest::Approx(1 / std::sqrt(x)).epsilon(tolerance));
    CHECK_EQ(emulation::to_f32(htanh(half(x))), doctest::Approx(std::tanh(x)).epsilon(tolerance));
    CHECK_EQ(emulation::to_f32(hrint(half(x))), std::nearbyint(x));
  }
  // 1 + 2^-k squared: the product's last bit survives in a fused sum, and would be lost by rounding first.
  const float step = std::is_same_v<Half, __half> ? 0x1p-10f : 0x1p-7f;
  const Half a = half(1 + step);
  CHECK_EQ(emulation::to_f32(__hfma(a, a, half(-1 - 2 * step))), step * step);
  CHECK_EQ(emulation::to_f32(__hfma_relu(a, half(-1), half(0))), 0);
  CHECK_EQ(emulation::to_f32(__hfma_sat(a, half(2), half(0))), 1);
}

}  // namespace

TEST_CASE("atomics lose no update") {
  for (const uint64_t seed : test::kSeeds) {
    int i = 0, bits[7] = {0, 99, 0, 0xff, 0, 0, 0};
    float f = 0;
    double d = 0;
    unsigned long long u = 0;
    __nv_bfloat162 h = __floats2bfloat162_rn(0, 0);
    REQUIRE_EQ(test::run_kernel(add_from_all_threads, {.grid = 2, .block = 64}, seed, &i, &f, &d, &u, &h, bits), "");
    CHECK_EQ(i, 64 * 63);
    CHECK_EQ(f, 64);
    CHECK_EQ(d, 32);
    CHECK_EQ(u, 128ull << 33);
    CHECK_EQ(__low2float(h), 128);
    CHECK_EQ(__high2float(h), -128);
    CHECK_EQ(bits[0], 63);
    CHECK_EQ(bits[1], 0);
    CHECK_EQ(bits[2], 0xff);
    CHECK_EQ(bits[3], 0xf0);
    CHECK_EQ(bits[4], 0);
    CHECK_GT(bits[5], 0);
    CHECK_EQ(bits[5], bits[6]);
  }
}

TEST_CASE("integer intrinsics") {
  CHECK_EQ(__popc(0xf0f0u), 8);
  CHECK_EQ(__popcll(~0ull), 64);
  CHECK_EQ(__ffs(0), 0);
  CHECK_EQ(__ffs(8), 4);
  CHECK_EQ(__clz(0), 32);
  CHECK_EQ(__clz(1), 31);
  CHECK_EQ(__brev(1u), 0x80000000u);
  CHECK_EQ(__umulhi(0x80000000u, 6u), 3u);
  CHECK_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x7531), 0x77553311u);
  CHECK_EQ(__byte_perm(0x00008000u, 0u, 0x9990), 0xffffff00u);
  CHECK_EQ(__funnelshift_l(0x80000001u, 0x1u, 1), 3u);
  CHECK_EQ(__funnelshift_r(0x80000001u, 0x1u, 1), 0xc0000000u);
  CHECK_EQ(__dp4a(0x01ff0203, 0x04050607, 10), 4 - 5 + 12 + 21 + 10);
  unsigned counter = 2;
  CHECK_EQ(atomicInc(&counter, 3), 2u);
  CHECK_EQ(atomicInc(&counter, 3), 3u);
  CHECK_EQ(counter, 0u);
  CHECK_EQ(atomicDec(&counter, 3), 0u);
  CHECK_EQ(counter, 3u);
}

TEST_CASE("conversions to integers saturate and take NaN for zero") {
  const float inf = std::numeric_limits<float>::infinity();
  CHECK_EQ(__float2int_rn(2.5f), 2);
  CHECK_EQ(__float2int_rz(-2.9f), -2);
  CHECK_EQ(__float2int_rd(-2.1f), -3);
  CHECK_EQ(__float2int_ru(2.1f), 3);
  CHECK_EQ(__float2int_rn(inf), std::numeric_limits<int>::max());
  CHECK_EQ(__float2int_rn(-inf), std::numeric_limits<int>::min());
  CHECK_EQ(__float2int_rn(std::nanf("")), 0);
  CHECK_EQ(__float2uint_rn(-1.0f), 0u);
  CHECK_EQ(__float2uint_rn(5e9f), 0xffffffffu);
  CHECK_EQ(__saturatef(std::nanf("")), 0);
}

TEST_CASE("half functions that the host headers lack") {
  check_half_functions<__half>(1e-3f);
  check_half_functions<__nv_bfloat16>(8e-3f);
}
