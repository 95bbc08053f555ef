// mbarrier, bulk copies and tensor copies: pipelines against plain sums, boxes against the element they hold, planted
// bugs.
#include <doctest/doctest.h>

#include <cmath>

#include "kernels/cuda/ptx.h"
#include "kernels/cuda/tensor_map.h"
#include "tests/support/run_kernel.h"
#include "tests/support/sanitized.h"

using namespace tokenmill;

namespace {

enum class Bug { kNone, kNoWait, kTooFewBytes, kTooManyBytes, kNoEmptyWait, kNoInit, kTwoArrivals };

constexpr int kChunk = 256, kStages = 2;

struct __align__(128) Pipeline {
  float chunk[kStages][kChunk];
  uint64_t full[kStages], empty[kStages];
};

/// Warp 0 loads chunks, warps 1 and 2 add them; "full" counts bytes, "empty" the adding threads.
__global__ void sum_chunks(float* out, const float* in, int num_chunks, Bug bug) {
#if GPU_HAS_SM90A
  GPU_SHARED(Pipeline, pipeline);
  const int t = static_cast<int>(threadIdx.x);
  if (t == 0 && bug != Bug::kNoInit) {
    for (int s = 0; s < kStages; ++s) {
      ptx::mbarrier_init(&pipeline.full[s], 1);
      ptx::mbarrier_init(&pipeline.empty[s], 64);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (t < 32) {
    if (!ptx::elect_one()) return;
    for (int c = 0; c < num_chunks; ++c) {
      const int s = c % kStages;
      if (bug != Bug::kNoEmptyWait) ptx::mbarrier_wait(&pipeline.empty[s], (c / kStages & 1) ^ 1);
      const int wrong = bug == Bug::kTooFewBytes ? -16 : bug == Bug::kTooManyBytes ? 16 : 0;
      ptx::mbarrier_arrive_expect_tx(&pipeline.full[s], static_cast<uint32_t>(sizeof pipeline.chunk[s] + wrong));
      if (bug == Bug::kTwoArrivals) ptx::mbarrier_arrive(&pipeline.full[s]);
      ptx::bulk_load(pipeline.chunk[s], in + c * kChunk, sizeof pipeline.chunk[s], &pipeline.full[s]);
    }
    return;
  }
  float sum = 0;
  for (int c = 0; c < num_chunks; ++c) {
    const int s = c % kStages;
    if (bug != Bug::kNoWait) {
      if (c % 2 == 0) {
        ptx::mbarrier_wait(&pipeline.full[s], c / kStages & 1);
      } else {
        while (!ptx::mbarrier_try_wait(&pipeline.full[s], c / kStages & 1)) {
        }
      }
    }
    for (int i = t - 32; i < kChunk; i += 64) sum += pipeline.chunk[s][i];
    ptx::mbarrier_arrive(&pipeline.empty[s]);
  }
  atomicAdd(out, sum);
#else
  __trap();
#endif
}

struct Outcome {
  std::string error;
  bool right;
};

Outcome run_sum(uint64_t seed, Bug bug) {
  constexpr int kChunks = 7;
  test::Shared<float> in(kChunks * kChunk), out(1);
  float want = 0;
  for (int i = 0; i < kChunks * kChunk; ++i) want += in[i] = static_cast<float>(i % 17);
  const std::string error = test::run_kernel(sum_chunks, {.block = 96}, seed, out.data(), in.data(), kChunks, bug);
  return {error, out[0] == want};
}

/// Adds one to every number, in place, through shared memory.
__global__ void add_one(float* values, bool waits) {
#if GPU_HAS_SM90A
  struct __align__(16) Buffer {
    float values[128];
    uint64_t full;
  };
  GPU_SHARED(Buffer, buffer);
  const int t = static_cast<int>(threadIdx.x);
  if (t == 0) {
    ptx::mbarrier_init(&buffer.full, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(&buffer.full, sizeof buffer.values);
    ptx::bulk_load(buffer.values, values + blockIdx.x * 128, sizeof buffer.values, &buffer.full);
  }
  __syncthreads();
  ptx::mbarrier_wait(&buffer.full, 0);
  buffer.values[t] += 1;
  ptx::fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    ptx::bulk_store(values + blockIdx.x * 128, buffer.values, sizeof buffer.values);
    ptx::bulk_commit();
    if (waits) ptx::bulk_wait<0>();
  }
#else
  __trap();
#endif
}

constexpr int kBoxRows = 16, kBoxColumns = 64;

/// Loads the box at {column, row}, shows its bytes as they lie, and stores it at the same place of `to`.
__global__ void move_box(uint16_t* seen, const __grid_constant__ CUtensorMap from,
                         const __grid_constant__ CUtensorMap to, int column, int row) {
#if GPU_HAS_SM90A
  struct __align__(1024) Tile {
    uint16_t elements[kBoxRows * kBoxColumns];
    uint64_t full;
  };
  GPU_SHARED(Tile, tile);
  const int t = static_cast<int>(threadIdx.x);
  if (t == 0) {
    ptx::prefetch_tensor_map(&from);
    ptx::mbarrier_init(&tile.full, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(&tile.full, sizeof tile.elements);
    ptx::tensor_load(tile.elements, &from, {column, row}, &tile.full);
  }
  __syncthreads();
  ptx::mbarrier_wait(&tile.full, 0);
  for (int i = t; i < kBoxRows * kBoxColumns; i += 32) seen[i] = tile.elements[i];
  ptx::fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    ptx::tensor_store(tile.elements, &to, {column, row});
    ptx::bulk_commit();
    ptx::bulk_wait<0>();
  }
#else
  __trap();
#endif
}

void check_box(CUtensorMapSwizzle swizzle, int unit_mask, uint64_t seed, int column, int row) {
  constexpr int kRows = 20, kColumns = 100, kStride = 104;
  const uint32_t columns = swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 32 : swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? 16 : 64;
  const uint32_t rows = kBoxRows * kBoxColumns / columns;
  test::Shared<uint16_t> from(kRows * kStride), to(kRows * kStride), seen(kBoxRows * kBoxColumns);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint16_t>(i + 1);
  CUtensorMap maps[2];
  for (int i = 0; i < 2; ++i) {
    REQUIRE_EQ(gpu::make_tensor_map(&maps[i], {.type = CU_TENSOR_MAP_DATA_TYPE_UINT16,
                                               .base = i == 0 ? from.data() : to.data(),
                                               .rows = kRows,
                                               .columns = kColumns,
                                               .row_bytes = kStride * 2,
                                               .box_rows = rows,
                                               .box_columns = columns,
                                               .swizzle = swizzle}),
               cudaSuccess);
  }
  REQUIRE_EQ(test::run_kernel(move_box, {}, seed, seen.data(), maps[0], maps[1], column, row), "");
  for (int r = 0; r < static_cast<int>(rows); ++r) {
    for (int c = 0; c < static_cast<int>(columns); ++c) {
      const int from_row = row + r, from_column = column + c;
      const bool inside = from_row >= 0 && from_row < kRows && from_column >= 0 && from_column < kColumns;
      // 16-byte units of a dense box; the swizzle exchanges them within lines of 128 bytes, by the line's number.
      const int at = (r * static_cast<int>(columns) + c) * 2, line = at / 128, unit = at / 16 % 8;
      const int place = line * 64 + (unit ^ (line & unit_mask)) * 8 + at / 2 % 8;
      CHECK_EQ(seen[place], inside ? from[from_row * kStride + from_column] : 0);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kStride; ++c) {
      const bool in_box = r >= row && r < row + static_cast<int>(rows) && c >= column &&
                          c < column + static_cast<int>(columns) && c < kColumns;
      CHECK_EQ(to[r * kStride + c], in_box ? from[r * kStride + c] : 0);
    }
  }
}

}  // namespace

TEST_CASE("a bulk-copy pipeline with full and empty barriers adds every chunk" *
          doctest::skip(test::lacks_capability(90))) {
  for (const uint64_t seed : test::kSeeds) {
    const Outcome outcome = run_sum(seed, Bug::kNone);
    CHECK_EQ(outcome.error, "");
    CHECK(outcome.right);
  }
}

TEST_CASE("bulk stores bring shared memory back" * doctest::skip(test::lacks_capability(90))) {
  for (const uint64_t seed : test::kSeeds) {
    test::Shared<float> values(4 * 128);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    REQUIRE_EQ(test::run_kernel(add_one, {.grid = 4, .block = 128}, seed, values.data(), true), "");
    for (size_t i = 0; i < values.size(); ++i) CHECK_EQ(values[i], static_cast<float>(i + 1));
  }
}

TEST_CASE("tensor copies move a box, swizzled, with zeros for what is outside" *
          doctest::skip(test::lacks_capability(90))) {
  for (const uint64_t seed : test::kSeeds) {
    check_box(CU_TENSOR_MAP_SWIZZLE_128B, 7, seed, 0, 0);
    check_box(CU_TENSOR_MAP_SWIZZLE_128B, 7, seed, 64, 8);
    check_box(CU_TENSOR_MAP_SWIZZLE_128B, 7, seed, -3, -5);
    check_box(CU_TENSOR_MAP_SWIZZLE_64B, 3, seed, 8, 2);
    check_box(CU_TENSOR_MAP_SWIZZLE_32B, 1, seed, 17, 1);
    check_box(CU_TENSOR_MAP_SWIZZLE_NONE, 0, seed, 50, 19);
  }
}

#ifdef TOKENMILL_CUDA_EMULATED
TEST_CASE("a wrong mbarrier protocol is an error or a wrong sum") {
  for (const uint64_t seed : test::kSeeds) {
    CAPTURE(seed);
    CHECK_EQ(test::unless_found("arrivals and 16 bytes", run_sum(seed, Bug::kTooManyBytes).error), "");
    CHECK_EQ(test::unless_found("arrivals and -16 bytes", run_sum(seed, Bug::kTooFewBytes).error), "");
    CHECK_EQ(test::unless_found("used before mbarrier.init", run_sum(seed, Bug::kNoInit).error), "");
    CHECK_EQ(test::unless_found("more arrivals in a phase", run_sum(seed, Bug::kTwoArrivals).error), "");
    if (test::kThreadSanitized) continue;
    const Outcome no_wait = run_sum(seed, Bug::kNoWait);
    CHECK((!no_wait.right || !no_wait.error.empty()));
    const Outcome no_empty_wait = run_sum(seed, Bug::kNoEmptyWait);
    CHECK((!no_empty_wait.right || !no_empty_wait.error.empty()));
  }
}

TEST_CASE("a store that is not waited for is an error") {
  test::Shared<float> values(128);
  CHECK_EQ(test::unless_found("the block ends with 1 bulk stores under way",
                              test::run_kernel(add_one, {.block = 128}, 0, values.data(), false)),
           "");
}

TEST_CASE("tensor maps that the driver refuses are refused") {
  test::Shared<uint16_t> base(4096);
  const gpu::MatrixBoxes good{.type = CU_TENSOR_MAP_DATA_TYPE_UINT16,
                              .base = base.data(),
                              .rows = 10,
                              .columns = 64,
                              .row_bytes = 128,
                              .box_rows = 8,
                              .box_columns = 64};
  CUtensorMap map;
  CHECK_EQ(gpu::make_tensor_map(&map, good), cudaSuccess);
  auto bad = good;
  bad.box_columns = 128;  // 256 bytes under the 128-byte swizzle
  CHECK_EQ(gpu::make_tensor_map(&map, bad), cudaErrorInvalidValue);
  bad = good;
  bad.row_bytes = 136;
  CHECK_EQ(gpu::make_tensor_map(&map, bad), cudaErrorInvalidValue);
  bad = good;
  bad.box_rows = 257;
  CHECK_EQ(gpu::make_tensor_map(&map, bad), cudaErrorInvalidValue);
  bad = good;
  bad.base = base.data() + 1;
  CHECK_EQ(gpu::make_tensor_map(&map, bad), cudaErrorInvalidValue);
}
#endif
