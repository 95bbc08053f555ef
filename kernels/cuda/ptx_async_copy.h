#pragma once
// cp.async (sm_80): global to shared memory behind the thread's back. A thread waits for its own copies only: a barrier
// follows before other threads read them.
#include "kernels/cuda/ptx_base.h"
#ifdef TOKENMILL_CUDA_EMULATED
#include "kernels/emulation/block/async_copy.h"
#endif

namespace tokenmill::ptx {

#ifndef TOKENMILL_CUDA_EMULATED

/// kBytes of 4, 8 or 16 at addresses that are multiples of it; 16 goes past L1. Of them the first source_bytes are read
/// from `from`, the others become zero; with 0 `from` is not read.
template <int kBytes>
__device__ __forceinline__ void cp_async(void* to, const void* from, int source_bytes = kBytes) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "cp.async copies 4, 8 or 16 bytes");
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(source_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from), "n"(kBytes),
                 "r"(source_bytes)
                 : "memory");
  }
}
/// Ends a group: the copies since the last commit.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits for all groups but the last kPending.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

#else

template <int kBytes>
inline void cp_async(void* to, const void* from, int source_bytes = kBytes, Site site = Site::here()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "cp.async copies 4, 8 or 16 bytes");
  emulation::start_async_copy(to, from, kBytes, source_bytes, site);
}
inline void cp_async_commit() { emulation::commit_async_copies(); }
template <int kPending>
inline void cp_async_wait() {
  emulation::wait_async_copies(kPending);
}
inline void cp_async_wait_all() { emulation::wait_all_async_copies(); }

#endif

}  // namespace tokenmill::ptx
