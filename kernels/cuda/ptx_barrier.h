#pragma once
// Named barriers: some warps of a block wait for each other (sync), or only tell (arrive). num_threads counts both
// kinds, is a multiple of 32, and is the same at every call of a round. Barrier 0 is __syncthreads.
#include "kernels/cuda/ptx_base.h"
#ifdef TOKENMILL_CUDA_EMULATED
#include "kernels/emulation/block/barrier.h"
#endif

namespace tokenmill::ptx {

#ifndef TOKENMILL_CUDA_EMULATED

__device__ __forceinline__ void named_barrier_sync(int id, int num_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(num_threads) : "memory");
}
__device__ __forceinline__ void named_barrier_arrive(int id, int num_threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(num_threads) : "memory");
}

#else

inline void named_barrier_sync(int id, int num_threads, Site site = Site::here()) {
  emulation::sync_named_barrier(id, num_threads, site);
}
inline void named_barrier_arrive(int id, int num_threads, Site site = Site::here()) {
  emulation::arrive_named_barrier(id, num_threads, site);
}

#endif

}  // namespace tokenmill::ptx
