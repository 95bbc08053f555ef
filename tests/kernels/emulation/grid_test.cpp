// Which threads a launch runs, in which orders, and how it fails.
#include <doctest/doctest.h>

#include <set>
#include <thread>
#include <vector>

#include "tests/support/run_kernel.h"

using namespace tokenmill;

namespace {

struct Seen {
  uint3 thread, block;
  dim3 block_size, grid_size;
};

__global__ void record_indices(Seen* seen, int* order, int* count) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned at = block * (blockDim.x * blockDim.y * blockDim.z) + thread;
  seen[at] = {threadIdx, blockIdx, blockDim, gridDim};
  order[atomicAdd(count, 1)] = static_cast<int>(at);
}

__global__ void count_threads(int* count) { atomicAdd(count, 1); }

__global__ void trap_in_block(int* ran, unsigned block) {
  if (threadIdx.x == 0) atomicAdd(ran, 1);
  if (blockIdx.x == block && threadIdx.x == 5) __trap();
  __syncthreads();
}

__global__ void fill_shared(float* out) {
  using Numbers = float[8];
  GPU_SHARED(Numbers, first);
  GPU_SHARED(Numbers, second);
  GPU_DYN_SHARED(bytes);
  if (threadIdx.x == 0) {
    out[0] = first[3];
    out[1] = reinterpret_cast<float*>(bytes)[1];
    out[2] = reinterpret_cast<uintptr_t>(bytes) % 1024 == 0;
  }
  __syncthreads();
  if (threadIdx.x < 8) first[threadIdx.x] = 1, second[threadIdx.x] = 2;
  bytes[threadIdx.x] = 3;
  __syncthreads();
  if (threadIdx.x == 33) out[3] = first[7] + second[0] + bytes[63];
}

__global__ void too_much_static_shared() {
  using Numbers = float[13000];
  GPU_SHARED(Numbers, numbers);
  numbers[0] = 1;
}

int sum_down(int depth) {
  volatile int filler[64];
  filler[depth % 64] = depth;
  return depth == 0 ? 0 : filler[depth % 64] + sum_down(depth - 1);
}
__global__ void use_stack(int* out) {
  const int sum = sum_down(200);
  __syncthreads();
  out[threadIdx.x] = sum;
}

}  // namespace

TEST_CASE("every thread of a grid runs once and sees its place") {
  const dim3 grid(3, 2, 2), block(5, 3, 4);
  constexpr int kThreads = 12 * 60;
  for (const uint64_t seed : test::kSeeds) {
    std::vector<Seen> seen(kThreads);
    std::vector<int> order(kThreads, -1);
    int count = 0;
    REQUIRE_EQ(
        test::run_kernel(record_indices, {.grid = grid, .block = block}, seed, seen.data(), order.data(), &count), "");
    CHECK_EQ(count, kThreads);
    CHECK_EQ(std::set<int>(order.begin(), order.end()).size(), kThreads);
    const Seen& s = seen[7 * 60 + 2 + 5 * (1 + 3 * 3)];  // block 7 = (1, 0, 1), thread (2, 1, 3)
    CHECK((s.block.x == 1 && s.block.y == 0 && s.block.z == 1));
    CHECK((s.thread.x == 2 && s.thread.y == 1 && s.thread.z == 3));
    const bool forward = seed == 0, reverse = seed == 1;
    if (forward) CHECK_EQ(order[61], 61);
    if (reverse) CHECK_EQ(order[61], 10 * 60 + 58);
    if (forward) CHECK_EQ(order[0], 0);
    if (reverse) CHECK_EQ(order[0], kThreads - 1);
  }
}

TEST_CASE("random seeds give different orders, equal seeds the same one") {
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 2; seed < 12; ++seed) {
    std::vector<int> order[2];
    for (auto& o : order) {
      std::vector<Seen> seen(256);
      o.resize(256);
      int count = 0;
      REQUIRE_EQ(test::run_kernel(record_indices, {.grid = 4, .block = 64}, seed, seen.data(), o.data(), &count), "");
    }
    CHECK(order[0] == order[1]);
    orders.insert(order[0]);
  }
  CHECK_EQ(orders.size(), 10);
}

TEST_CASE("a failing block stops the grid and names kernel, place, block and thread; the next launch is clean") {
  for (const uint64_t seed : test::kSeeds) {
    int ran = 0;
    const std::string error =
        test::run_kernel(trap_in_block, {.grid = 4, .block = 64, .name = "trap_in_block"}, seed, &ran, 2u);
    CHECK_EQ(test::unless_found("kernel trap_in_block: ", error), "");
    CHECK_EQ(test::unless_found("grid_test.cpp:", error), "");
    CHECK_EQ(test::unless_found("__trap [block (2,0,0), thread (5,0,0)]", error), "");
    if (seed == 0) CHECK_EQ(ran, 3);
    int count = 0;
    CHECK_EQ(test::run_kernel(count_threads, {.grid = 4, .block = 64}, seed, &count), "");
    CHECK_EQ(count, 256);
    CHECK_EQ(test::run_kernel(trap_in_block, {.grid = 4, .block = 64}, seed, &ran, 9u), "");
  }
}

TEST_CASE("shapes that no device takes are refused by name") {
  int count = 0;
  CHECK_EQ(
      test::unless_found("the grid or the block is empty", test::run_kernel(count_threads, {.grid = 0}, 0, &count)),
      "");
  CHECK_EQ(test::unless_found("the block has 2048 threads; at most 1024",
                              test::run_kernel(count_threads, {.block = dim3(64, 32)}, 0, &count)),
           "");
  CHECK_EQ(test::unless_found("300000 bytes of dynamic shared memory; a block has at most 232448",
                              test::run_kernel(count_threads, {.smem = 300000}, 0, &count)),
           "");
  CHECK_EQ(count, 0);
  CHECK_EQ(test::unless_found("static shared memory grows to 52000 bytes; at most 49152",
                              test::run_kernel(too_much_static_shared, {}, 0)),
           "");
}

TEST_CASE("shared memory starts as NaN in every block and belongs to all its threads") {
  for (const uint64_t seed : test::kSeeds) {
    float out[4] = {};
    REQUIRE_EQ(test::run_kernel(fill_shared, {.grid = 3, .block = 64, .smem = 64}, seed, out), "");
    CHECK(out[0] != out[0]);
    CHECK(out[1] != out[1]);
    CHECK_EQ(out[2], 1);
    CHECK_EQ(out[3], 1 + 2 + 3);
  }
}

TEST_CASE("each thread has a stack of its own, big enough for recursion") {
  std::vector<int> out(1024);
  REQUIRE_EQ(test::run_kernel(use_stack, {.block = 1024}, 0, out.data()), "");
  for (const int v : out) CHECK_EQ(v, 200 * 201 / 2);
}

TEST_CASE("host threads run grids at the same time") {
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) test::run_kernel(count_threads, {.grid = 5, .block = 96}, t, &count);
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK_EQ(count, 4 * 20 * 5 * 96);
}
