// Warp collectives against the sentences of the CUDA programming guide, and what goes wrong with them.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "tests/support/run_kernel.h"
#include "tests/support/sanitized.h"

using namespace tokenmill;

namespace {

constexpr unsigned kAll = 0xffffffffu;

__global__ void shuffles(int* index, int* up, int* down, int* exchanged, int argument, int width) {
  const int lane = static_cast<int>(threadIdx.x);
  index[lane] = __shfl_sync(kAll, lane, argument, width);
  up[lane] = __shfl_up_sync(kAll, lane, static_cast<unsigned>(argument), width);
  down[lane] = __shfl_down_sync(kAll, lane, static_cast<unsigned>(argument), width);
  exchanged[lane] = __shfl_xor_sync(kAll, lane, argument, width);
}

__global__ void shuffle_types(double* d, float* f, unsigned long long* u, __nv_bfloat162* h) {
  const unsigned lane = threadIdx.x;
  d[lane] = __shfl_sync(kAll, lane + 0.25, 31 - static_cast<int>(lane));
  f[lane] = __shfl_xor_sync(kAll, static_cast<float>(lane) + 0.5f, 16);
  u[lane] = __shfl_down_sync(kAll, (1ull << 40) + lane, 1);
  h[lane] = __shfl_up_sync(kAll, __floats2bfloat162_rn(static_cast<float>(lane), -1.0f), 1);
}

__global__ void votes(unsigned* out) {
  const int lane = static_cast<int>(threadIdx.x);
  unsigned* own = out + lane * 8;
  own[0] = __ballot_sync(kAll, lane % 3 == 0);
  own[1] = static_cast<unsigned>(__any_sync(kAll, lane == 7));
  own[2] = static_cast<unsigned>(__any_sync(kAll, lane > 31));
  own[3] = static_cast<unsigned>(__all_sync(kAll, lane < 32));
  own[4] = static_cast<unsigned>(__all_sync(kAll, lane != 0));
  own[5] = __match_any_sync(kAll, lane % 4);
  int equal = -1;
  own[6] = __match_all_sync(kAll, lane / 32, &equal);
  own[7] = static_cast<unsigned>(equal);
}

__global__ void halves(unsigned* out) {
  const unsigned lane = threadIdx.x;
  if (lane < 16) {
    out[lane] = __ballot_sync(0xffffu, 1);
  } else {
    out[lane] = __ballot_sync(0xffff0000u, lane % 2);
  }
  __syncwarp();
  out[lane] += __reduce_add_sync(kAll, 1u);
}

__global__ void reductions(int* out, const int* in) {
  const int v = in[threadIdx.x];
  int* own = out + threadIdx.x * 8;
  own[0] = __reduce_add_sync(kAll, v);
  own[1] = __reduce_min_sync(kAll, v);
  own[2] = __reduce_max_sync(kAll, v);
  own[3] = static_cast<int>(__reduce_min_sync(kAll, static_cast<unsigned>(v)));
  own[4] = static_cast<int>(__reduce_max_sync(kAll, static_cast<unsigned>(v)));
  own[5] = static_cast<int>(__reduce_and_sync(kAll, static_cast<unsigned>(v)));
  own[6] = static_cast<int>(__reduce_or_sync(kAll, static_cast<unsigned>(v)));
  own[7] = static_cast<int>(__reduce_xor_sync(kAll, static_cast<unsigned>(v)));
}

__global__ void pass_through_shared(int* out, bool sync) {
  using Slots = int[32];
  GPU_SHARED(Slots, slots);
  slots[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (sync) __syncwarp();
  out[threadIdx.x] = slots[31 - threadIdx.x];
}

__global__ void read_outside_the_mask(unsigned* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffu, threadIdx.x, 20);
}

__global__ void half_a_warp() {
  if (threadIdx.x % 32 < 16) __shfl_xor_sync(kAll, 1, 1);
}
__global__ void exited_lanes() {
  if (threadIdx.x >= 24) return;
  __syncwarp();
  __shfl_xor_sync(kAll, 1, 1);
}
__global__ void partial_warp() { __ballot_sync(kAll, 1); }
__global__ void not_in_its_mask() { __ballot_sync(0xfu, 1); }
__global__ void two_places() {
  if (threadIdx.x < 16)
    __shfl_xor_sync(kAll, 1, 1);
  else
    __shfl_xor_sync(kAll, 2, 1);
}
__global__ void bad_width() { __shfl_sync(kAll, 1, 0, 12); }

}  // namespace

TEST_CASE("the four shuffles read from the lane that the guide says") {
  for (const uint64_t seed : test::kSeeds) {
    for (const int width : {1, 2, 8, 16, 32}) {
      for (const int argument : {0, 1, 3, 5, 16, 31}) {
        int index[32], up[32], down[32], exchanged[32];
        REQUIRE_EQ(test::run_kernel(shuffles, {}, seed, index, up, down, exchanged, argument, width), "");
        for (int lane = 0; lane < 32; ++lane) {
          const int base = lane / width * width, at = lane % width;  // subsections of width lanes, ids from 0
          CAPTURE(lane);
          CHECK_EQ(index[lane], base + argument % width);
          CHECK_EQ(up[lane], at - argument < 0 ? lane : lane - argument);
          CHECK_EQ(down[lane], at + argument >= width ? lane : lane + argument);
          // Lanes of a later subsection cannot be read: the own value then. Those of earlier ones can.
          const int source = lane ^ argument;
          CHECK_EQ(exchanged[lane], source >= base + width ? lane : source);
        }
      }
    }
  }
}

TEST_CASE("shuffles carry numbers of 2 to 8 bytes") {
  double d[32];
  float f[32];
  unsigned long long u[32];
  __nv_bfloat162 h[32];
  REQUIRE_EQ(test::run_kernel(shuffle_types, {}, 2, d, f, u, h), "");
  for (int lane = 0; lane < 32; ++lane) {
    CHECK_EQ(d[lane], 31 - lane + 0.25);
    CHECK_EQ(f[lane], static_cast<float>(lane ^ 16) + 0.5f);
    CHECK_EQ(u[lane], (1ull << 40) + std::min(lane + 1, 31));
    CHECK_EQ(__bfloat162float(h[lane].x), static_cast<float>(std::max(lane - 1, 0)));
    CHECK_EQ(__bfloat162float(h[lane].y), -1.0f);
  }
}

TEST_CASE("votes and matches") {
  for (const uint64_t seed : test::kSeeds) {
    std::vector<unsigned> out(32 * 8);
    REQUIRE_EQ(test::run_kernel(votes, {}, seed, out.data()), "");
    for (unsigned lane = 0; lane < 32; ++lane) {
      const unsigned want[] = {0x49249249u, 1, 0, 1, 0, 0x11111111u << lane % 4, kAll, 1};
      for (int i = 0; i < 8; ++i) CHECK_EQ(out[lane * 8 + i], want[i]);
    }
  }
}

TEST_CASE("halves of a warp meet apart and together again") {
  for (const uint64_t seed : test::kSeeds) {
    unsigned out[32];
    REQUIRE_EQ(test::run_kernel(halves, {}, seed, out), "");
    for (unsigned lane = 0; lane < 32; ++lane) CHECK_EQ(out[lane], (lane < 16 ? 0xffffu : 0xaaaa0000u) + 32);
  }
}

TEST_CASE("reductions of signed and unsigned values") {
  std::vector<int> in(32), out(32 * 8);
  unsigned all = kAll, any = 0, odd = 0, smallest = kAll, largest = 0;
  int sum = 0;
  for (int i = 0; i < 32; ++i) {
    in[i] = i * 0x01234567 - 1000000000;
    const auto u = static_cast<unsigned>(in[i]);
    sum = static_cast<int>(static_cast<unsigned>(sum) + u);
    all &= u, any |= u, odd ^= u;
    smallest = std::min(smallest, u), largest = std::max(largest, u);
  }
  REQUIRE_EQ(test::run_kernel(reductions, {}, 3, out.data(), in.data()), "");
  for (int lane = 0; lane < 32; ++lane) {
    const int want[] = {sum,
                        *std::min_element(in.begin(), in.end()),
                        *std::max_element(in.begin(), in.end()),
                        static_cast<int>(smallest),
                        static_cast<int>(largest),
                        static_cast<int>(all),
                        static_cast<int>(any),
                        static_cast<int>(odd)};
    for (int i = 0; i < 8; ++i) CHECK_EQ(out[lane * 8 + i], want[i]);
  }
}

TEST_CASE("__syncwarp separates writes from reads; without it lanes read what is not there") {
  for (const uint64_t seed : test::kSeeds) {
    int out[32], wrong = 0;
    REQUIRE_EQ(test::run_kernel(pass_through_shared, {}, seed, out, true), "");
    for (int lane = 0; lane < 32; ++lane) CHECK_EQ(out[lane], 31 - lane);
    if (test::kThreadSanitized) continue;
    REQUIRE_EQ(test::run_kernel(pass_through_shared, {}, seed, out, false), "");
    for (int lane = 0; lane < 32; ++lane) wrong += out[lane] != 31 - lane;
    CHECK_GT(wrong, 0);
  }
}

TEST_CASE("a lane outside the mask gives garbage") {
  unsigned out[16];
  REQUIRE_EQ(test::run_kernel(read_outside_the_mask, {}, 0, out), "");
  for (const unsigned v : out) CHECK_EQ(v, 0xDEADBEEFu);
}

TEST_CASE("collectives with lanes missing are errors") {
  for (const uint64_t seed : test::kSeeds) {
    const auto error = [&](void (*kernel)(), unsigned threads) {
      return test::run_kernel(kernel, {.block = threads}, seed);
    };
    CHECK_EQ(test::unless_found("exited", error(exited_lanes, 32)), "");
    CHECK_EQ(test::unless_found("names lanes that have exited or do not exist (0xffffff00)", error(partial_warp, 40)),
             "");
    CHECK_EQ(test::unless_found("calls it and is not in its mask 0x0000000f", error(not_in_its_mask, 32)), "");
    CHECK_EQ(test::unless_found("divergent warp shuffle", error(two_places, 32)), "");
    CHECK_EQ(test::unless_found("width 12 is not a power of two", error(bad_width, 32)), "");
    CHECK_EQ(test::unless_found("exited", error(half_a_warp, 32)), "");
  }
}
