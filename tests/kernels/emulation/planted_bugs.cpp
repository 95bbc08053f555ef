// Kernels with one bug each, for the sanitizers to find: planted_bugs NAME runs one and prints its error or "ran".
#include <cstdio>
#include <cstring>
#include <memory>

#include "kernels/cuda/ptx.h"
#include "tests/support/run_kernel.h"

using namespace tokenmill;

namespace {

constexpr int kThreads = 128;

/// What a bug of memory reads or writes: index `at` of arrays of kThreads floats.
__global__ void global_access(float* values, int at) {
  values[threadIdx.x == 0 ? at : static_cast<int>(threadIdx.x)] += 1;
}

__global__ void static_shared_access(float* out, int at) {
  using Values = float[kThreads];
  GPU_SHARED(Values, values);
  values[threadIdx.x == 0 ? at : static_cast<int>(threadIdx.x)] = 1;
  out[threadIdx.x] = values[threadIdx.x];
}

__global__ void dynamic_shared_access(float* out, int at) {
  GPU_DYN_SHARED(bytes);
  auto* values = reinterpret_cast<float*>(bytes);
  values[threadIdx.x == 0 ? at : static_cast<int>(threadIdx.x)] = 1;
  out[threadIdx.x] = values[threadIdx.x];
}

__global__ void load_float4(float* values, int at) {
  if (threadIdx.x != 0) return;
  const float4 four = *reinterpret_cast<const float4*>(values + at);
  values[0] = four.w;
}

__global__ void async_copy_from(float* values, int at) {
  using Buffer = float[4];
  GPU_SHARED(Buffer, buffer);
  if (threadIdx.x != 0) return;
  ptx::cp_async<16>(buffer, values + at);
  ptx::cp_async_wait_all();
  values[0] = buffer[0];
}

__global__ void matrix_from(float* values, int at) {
  struct __align__(16) Rows {
    uint16_t row[32][8];
  };
  GPU_SHARED(Rows, rows);
  uint32_t registers[4] = {};
  if (threadIdx.x < 32) ptx::ldmatrix<4>(registers, rows.row[static_cast<int>(threadIdx.x) + at]);
  values[threadIdx.x] = static_cast<float>(registers[0]);
}

enum class Sync { kRight, kNoBarrier, kNoBarrierBeforeReuse };

/// Each thread adds its right neighbour's number; twice, so that the slots are written again.
__global__ void neighbours(float* out, Sync sync) {
  using Slots = float[kThreads];
  GPU_SHARED(Slots, slots);
  float sum = 0;
  for (int round = 0; round < 2; ++round) {
    slots[threadIdx.x] = static_cast<float>(round);  // the write
    if (sync != Sync::kNoBarrier) __syncthreads();
    sum += slots[(threadIdx.x + 1) % kThreads];  // the read
    if (sync != Sync::kNoBarrierBeforeReuse) __syncthreads();
  }
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

/// As neighbours, within a warp.
__global__ void neighbour_lanes(float* out, Sync sync) {
  using Slots = float[kThreads];
  GPU_SHARED(Slots, slots);
  slots[threadIdx.x] = 1;  // the write
  if (sync != Sync::kNoBarrier) __syncwarp();
  out[blockIdx.x * kThreads + threadIdx.x] = slots[threadIdx.x ^ 1];  // the read
}

/// Lanes that a shuffle holds together still race.
__global__ void shuffle_is_no_barrier(float* out, Sync sync) {
  using Slots = float[kThreads];
  GPU_SHARED(Slots, slots);
  slots[threadIdx.x] = 1;  // the write
  const int zero = __shfl_xor_sync(0xffffffffu, 0, 1);
  if (sync != Sync::kNoBarrier) __syncwarp();
  out[blockIdx.x * kThreads + threadIdx.x] = slots[(threadIdx.x ^ 1) + zero];  // the read
}

/// Copies by cp.async of one thread are the others' after a barrier.
__global__ void async_copy_for_others(float* out, Sync sync) {
  using Slots = float[kThreads];
  GPU_SHARED(Slots, slots);
  if (threadIdx.x % 4 == 0) ptx::cp_async<16>(&slots[threadIdx.x], out + threadIdx.x);
  ptx::cp_async_wait_all();  // the write
  if (sync != Sync::kNoBarrier) __syncthreads();
  const float value = slots[kThreads - 1 - threadIdx.x];  // the read
  __syncthreads();
  out[threadIdx.x] = value;
}

/// A bulk load into memory that others may still read.
__global__ void bulk_load_over_readers(float* out, Sync sync) {
  struct __align__(16) Buffer {
    float values[kThreads];
    uint64_t full;
  };
  GPU_SHARED(Buffer, buffer);
  if (threadIdx.x == 0) ptx::mbarrier_init(&buffer.full, 1);
  buffer.values[threadIdx.x] = 1;
  __syncthreads();
  float sum = buffer.values[kThreads - 1 - threadIdx.x];  // the read
  if (sync != Sync::kNoBarrierBeforeReuse) __syncthreads();
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(&buffer.full, sizeof buffer.values);
    ptx::bulk_load(buffer.values, out, sizeof buffer.values, &buffer.full);
  }
  ptx::mbarrier_wait(&buffer.full, 0);
  sum += buffer.values[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = sum;
}

/// A tile that is multiplied before all its writers have been waited for.
__global__ void multiply_tile(float* out, Sync sync) {
  GPU_DYN_SHARED(bytes);
  auto* tile = reinterpret_cast<__nv_bfloat16*>(bytes);
  for (int i = 0; i < 32; ++i) tile[threadIdx.x * 32 + i] = __float2bfloat16(1);  // the write
  ptx::fence_proxy_async();
  if (sync != Sync::kNoBarrier) __syncthreads();
  float d[8];
  ptx::wgmma_fence();
  ptx::wgmma_bf16<16>(d, ptx::swizzle128_descriptor(tile), ptx::swizzle128_descriptor(tile), false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();  // the read
  out[threadIdx.x] = d[0];
}

struct Case {
  const char* name;
  void (*kernel)(float*, int);
  int at;
};
constexpr Case kMemory[] = {
    {"global_inside", global_access, 3},
    {"global_past_the_end", global_access, kThreads},
    {"static_shared_inside", static_shared_access, 3},
    {"static_shared_past_the_end", static_shared_access, kThreads},
    {"dynamic_shared_inside", dynamic_shared_access, 3},
    {"dynamic_shared_past_the_end", dynamic_shared_access, kThreads},
    {"float4_aligned", load_float4, 4},
    {"float4_misaligned", load_float4, 5},
    {"async_copy_inside", async_copy_from, 4},
    {"async_copy_past_the_end", async_copy_from, kThreads},
    {"matrix_inside", matrix_from, 0},
    {"matrix_past_the_end", matrix_from, 1},
};

struct Race {
  const char* name;
  void (*kernel)(float*, Sync);
};
constexpr Race kRaces[] = {
    {"neighbours", neighbours},
    {"neighbour_lanes", neighbour_lanes},
    {"shuffle_is_no_barrier", shuffle_is_no_barrier},
    {"async_copy_for_others", async_copy_for_others},
    {"bulk_load_over_readers", bulk_load_over_readers},
    {"multiply_tile", multiply_tile},
};

int report(const std::string& error) {
  std::printf("%s\n", error.empty() ? "ran" : error.c_str());
  return error.empty() ? 0 : 3;
}

Sync sync_of(const char* name) {
  if (std::strcmp(name, "no_barrier") == 0) return Sync::kNoBarrier;
  return std::strcmp(name, "no_barrier_before_reuse") == 0 ? Sync::kNoBarrierBeforeReuse : Sync::kRight;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::puts("usage: planted_bugs NAME [right|no_barrier|no_barrier_before_reuse]"), 2;
  for (const Case& c : kMemory) {
    if (std::strcmp(argv[1], c.name) != 0) continue;
    test::Shared<float> values(kThreads);
    return report(
        test::run_kernel(c.kernel, {.block = kThreads, .smem = kThreads * sizeof(float)}, 0, values.data(), c.at));
  }
  for (const Race& race : kRaces) {
    if (argc < 3 || std::strcmp(argv[1], race.name) != 0) continue;
    test::Shared<float> values(2 * kThreads);
    std::string error;
    for (const uint64_t seed : {0, 1}) {
      error += test::run_kernel(race.kernel, {.grid = 2, .block = kThreads, .smem = 8192}, seed, values.data(),
                                sync_of(argv[2]));
    }
    return report(error);
  }
  return std::printf("no case %s\n", argv[1]), 2;
}
