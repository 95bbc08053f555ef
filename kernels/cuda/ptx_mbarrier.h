#pragma once
// mbarrier (sm_90): a barrier in shared memory that counts arrivals of threads and bytes of copies, phase by phase. The
// parity of a phase is 0 for the first, 1 for the second, ... A wait for parity 1 on a new barrier returns at once.
// After mbarrier_init: fence_mbarrier_init, then a block barrier.
#include "kernels/cuda/ptx_base.h"
#ifdef TOKENMILL_CUDA_EMULATED
#include "kernels/emulation/block/mbarrier.h"
#endif

namespace tokenmill::ptx {

#ifndef TOKENMILL_CUDA_EMULATED

__device__ __forceinline__ void mbarrier_init(uint64_t* barrier, int num_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(num_arrivals) : "memory");
}
__device__ __forceinline__ void mbarrier_inval(uint64_t* barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/// Expects `bytes` of copies in this phase, then arrives.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void mbarrier_expect_tx(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
/// Whether the phase of this parity is complete; may wait a while for it.
__device__ __forceinline__ bool mbarrier_try_wait(uint64_t* barrier, int parity) {
  uint32_t complete;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(complete)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return complete != 0;
}
__device__ __forceinline__ void mbarrier_wait(uint64_t* barrier, int parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}
/// Makes mbarrier_init visible to copies.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/// Makes the thread's writes to shared memory visible to copies and wgmma; a barrier follows.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// True for one lane of a full warp.
__device__ __forceinline__ bool elect_one() {
  uint32_t elected;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(elected)::"memory");
  return elected != 0;
}
/// Registers per thread of the warpgroup, a multiple of 8 from 24 to 256: all its warps execute it.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

#else

inline void mbarrier_init(uint64_t* barrier, int num_arrivals, Site site = Site::here()) {
  emulation::init_mbarrier(barrier, num_arrivals, site);
}
inline void mbarrier_inval(uint64_t* barrier, Site site = Site::here()) {
  emulation::invalidate_mbarrier(barrier, site);
}
inline void mbarrier_arrive(uint64_t* barrier, Site site = Site::here()) {
  emulation::arrive_mbarrier(barrier, 0, /*arrives=*/true, site);
}
inline void mbarrier_arrive_expect_tx(uint64_t* barrier, uint32_t bytes, Site site = Site::here()) {
  emulation::arrive_mbarrier(barrier, bytes, /*arrives=*/true, site);
}
inline void mbarrier_expect_tx(uint64_t* barrier, uint32_t bytes, Site site = Site::here()) {
  emulation::arrive_mbarrier(barrier, bytes, /*arrives=*/false, site);
}
inline bool mbarrier_try_wait(uint64_t* barrier, int parity, Site site = Site::here()) {
  return emulation::test_mbarrier(barrier, parity, site);
}
inline void mbarrier_wait(uint64_t* barrier, int parity, Site site = Site::here()) {
  emulation::wait_mbarrier(barrier, parity, site);
}
inline void fence_mbarrier_init() {}
inline void fence_proxy_async() {}
inline bool elect_one(Site site = Site::here()) {
  return (__ballot_sync(0xffffffffu, 1, site) & 1) && threadIdx.x % 32 == 0;
}
template <int kRegisters>
inline void setmaxnreg_inc() {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
}
template <int kRegisters>
inline void setmaxnreg_dec() {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
}

#endif

}  // namespace tokenmill::ptx
