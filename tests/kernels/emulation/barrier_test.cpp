// __syncthreads in its forms, named barriers, and what goes wrong with them.
#include "kernels/emulation/block/barrier.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tests/support/run_kernel.h"
#include "tests/support/sanitized.h"

using namespace tokenmill;

namespace {

enum class Bug { kNone, kReadAfterWrite, kWriteAfterRead };

/// Each round, every thread writes its number and reads its mirror thread's.
__global__ void mirror(int* sum, int rounds, Bug bug) {
  using Slots = int[256];
  GPU_SHARED(Slots, slots);
  for (int round = 0; round < rounds; ++round) {
    slots[threadIdx.x] = static_cast<int>(threadIdx.x) + round;
    if (bug != Bug::kReadAfterWrite) __syncthreads();
    sum[threadIdx.x] += slots[blockDim.x - 1 - threadIdx.x];
    if (bug != Bug::kWriteAfterRead) __syncthreads();
  }
}

bool mirror_is_right(uint64_t seed, Bug bug) {
  constexpr int kThreads = 256, kRounds = 5;
  std::vector<int> sum(kThreads);
  REQUIRE_EQ(test::run_kernel(mirror, {.block = kThreads}, seed, sum.data(), kRounds, bug), "");
  for (int t = 0; t < kThreads; ++t) {
    if (sum[t] != kRounds * (kThreads - 1 - t) + kRounds * (kRounds - 1) / 2) return false;
  }
  return true;
}

__global__ void vote(int* out) {
  const int t = static_cast<int>(threadIdx.x);
  if (t >= 70) return;  // exited threads have no vote
  int* own = out + t * 5;
  own[0] = __syncthreads_count(t % 3 == 0);
  own[1] = __syncthreads_or(t == 69);
  own[2] = __syncthreads_or(t > 70);
  own[3] = __syncthreads_and(t < 70);
  own[4] = __syncthreads_and(t != 1);
}

__global__ void divergent() {
  if (threadIdx.x % 2 == 0)
    __syncthreads();
  else
    __syncthreads();
}

__global__ void divergent_on_one_line() {
  // clang-format off
  if (threadIdx.x < 32) __syncthreads(); else __syncthreads();
  // clang-format on
}

__global__ void wait_for_others_that_wait_elsewhere() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    emulation::sync_named_barrier(1, 64, emulation::Site::here());
  }
}

__global__ void leave_early(int* out) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

/// Warp 0 hands ten numbers through one slot to warp 1: "full" is barrier 1, "empty" barrier 2.
__global__ void hand_over(int* out, int count) {
  using Slot = int[32];
  GPU_SHARED(Slot, slot);
  const unsigned lane = threadIdx.x % 32;
  for (int i = 0; i < count; ++i) {
    if (threadIdx.x < 32) {
      if (i > 0) emulation::sync_named_barrier(2, 64, emulation::Site::here());
      slot[lane] = i * 100 + static_cast<int>(lane);
      emulation::arrive_named_barrier(1, 64, emulation::Site::here());
    } else {
      emulation::sync_named_barrier(1, 64, emulation::Site::here());
      out[i * 32 + lane] = slot[31 - lane];
      if (i + 1 < count) emulation::arrive_named_barrier(2, 64, emulation::Site::here());
    }
  }
}

__global__ void bad_named_barrier(int id, int count) {
  emulation::sync_named_barrier(id, count + (threadIdx.x >= 32 ? 32 : 0), emulation::Site::here());
}

}  // namespace

TEST_CASE("__syncthreads separates writes from reads in every order") {
  for (const uint64_t seed : test::kSeeds) CHECK(mirror_is_right(seed, Bug::kNone));
}

TEST_CASE("a missing __syncthreads shows in every order" * doctest::skip(test::kThreadSanitized)) {
  for (const uint64_t seed : test::kSeeds) {
    CHECK_FALSE(mirror_is_right(seed, Bug::kReadAfterWrite));
    CHECK_FALSE(mirror_is_right(seed, Bug::kWriteAfterRead));
  }
}

TEST_CASE("__syncthreads_count, _or and _and see the predicates of the threads that have not exited") {
  for (const uint64_t seed : test::kSeeds) {
    std::vector<int> out(96 * 5, -1);
    REQUIRE_EQ(test::run_kernel(vote, {.block = 96}, seed, out.data()), "");
    for (int t = 0; t < 70; ++t) {
      const int want[] = {24, 1, 0, 1, 0};
      for (int i = 0; i < 5; ++i) CHECK_EQ(out[t * 5 + i], want[i]);
    }
  }
}

TEST_CASE("__syncthreads at two places is an error that names both") {
  for (const uint64_t seed : test::kSeeds) {
    CHECK_EQ(test::unless_found("divergent __syncthreads: other threads of the block wait at ",
                                test::run_kernel(divergent, {.block = 64}, seed)),
             "");
    CHECK_EQ(
        test::unless_found("divergent __syncthreads", test::run_kernel(divergent_on_one_line, {.block = 64}, seed)),
        "");
  }
}

TEST_CASE("a deadlock says how many threads wait where") {
  for (const uint64_t seed : test::kSeeds) {
    const std::string error = test::run_kernel(wait_for_others_that_wait_elsewhere, {.block = 64}, seed);
    CHECK_EQ(test::unless_found("deadlock: ", error), "");
    CHECK_EQ(test::unless_found("32 threads wait for __syncthreads at ", error), "");
    CHECK_EQ(test::unless_found("32 threads wait for a named barrier at ", error), "");
    CHECK_EQ(test::unless_found("0 have exited [block (0,0,0)]", error), "");
  }
}

TEST_CASE("threads that have exited do not hold up a barrier") {
  for (const uint64_t seed : test::kSeeds) {
    int out[64] = {};
    CHECK_EQ(test::run_kernel(leave_early, {.block = 64}, seed, out), "");
    for (int t = 0; t < 64; ++t) CHECK_EQ(out[t], t < 40);
  }
}

TEST_CASE("named barriers hand data from warp to warp") {
  for (const uint64_t seed : test::kSeeds) {
    std::vector<int> out(320);
    REQUIRE_EQ(test::run_kernel(hand_over, {.block = 64}, seed, out.data(), 10), "");
    for (int i = 0; i < 320; ++i) CHECK_EQ(out[i], i / 32 * 100 + 31 - i % 32);
  }
}

TEST_CASE("named barriers check their number and their threads") {
  CHECK_EQ(test::unless_found("named barrier 16; there are 0 to 15",
                              test::run_kernel(bad_named_barrier, {.block = 32}, 0, 16, 32)),
           "");
  CHECK_EQ(
      test::unless_found("named barrier of 40 threads", test::run_kernel(bad_named_barrier, {.block = 32}, 0, 3, 40)),
      "");
  CHECK_EQ(test::unless_found("said 64", test::run_kernel(bad_named_barrier, {.block = 64}, 0, 3, 64)), "");
}
