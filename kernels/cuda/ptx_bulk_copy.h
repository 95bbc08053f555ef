#pragma once
// Bulk and tensor copies (sm_90), started by one thread. Loads count their bytes on an mbarrier that was told to expect
// them. Stores are grouped and waited for by the thread that started them; before one, the writers of the shared memory
// pass fence_proxy_async and a barrier. Addresses are multiples of 16 (tensor copies: of 128 in shared memory), sizes
// too.
#include "kernels/cuda/ptx_base.h"
#ifdef TOKENMILL_CUDA_EMULATED
#include "kernels/emulation/block/mbarrier.h"
#include "kernels/emulation/block/tensor_copy.h"
#endif

namespace tokenmill::ptx {

#ifndef TOKENMILL_CUDA_EMULATED

__device__ __forceinline__ void bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void bulk_store(void* to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits for all groups of stores but the last kPending: to be complete, or (read) to need the shared memory no more.
template <int kPending>
__device__ __forceinline__ void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}
template <int kPending>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

/// The box of the map at these coordinates (innermost first). What lies outside the tensor loads as 0 and is not
/// stored. The map is a `const __grid_constant__ CUtensorMap` parameter of the kernel.
template <int kRank>
__device__ __forceinline__ void tensor_load(void* to, const CUtensorMap* map, const int (&at)[kRank],
                                            uint64_t* barrier) {
  static_assert(kRank >= 2 && kRank <= 4, "tensor copies of rank 2 to 4");
  if constexpr (kRank == 2) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4}], [%2];" ::"r"(
            shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(at[0]), "r"(at[1])
        : "memory");
  } else if constexpr (kRank == 3) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5}], [%2];" ::
            "r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(at[0]), "r"(at[1]), "r"(at[2])
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], "
        "[%2];" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
        : "memory");
  }
}
template <int kRank>
__device__ __forceinline__ void tensor_store(const void* from, const CUtensorMap* map, const int (&at)[kRank]) {
  static_assert(kRank >= 2 && kRank <= 4, "tensor copies of rank 2 to 4");
  if constexpr (kRank == 2) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2,%3}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(at[0]), "r"(at[1])
                 : "memory");
  } else if constexpr (kRank == 3) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2,%3,%4}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(at[0]), "r"(at[1]), "r"(at[2])
                 : "memory");
  } else {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2,%3,%4,%5}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
                 : "memory");
  }
}
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

#else

inline void bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* barrier, Site site = Site::here()) {
  emulation::start_bulk_load(to, from, bytes, barrier, site);
}
inline void bulk_store(void* to, const void* from, uint32_t bytes, Site site = Site::here()) {
  emulation::start_bulk_store(to, from, bytes, site);
}
inline void bulk_commit() { emulation::commit_bulk_stores(); }
template <int kPending>
inline void bulk_wait() {
  emulation::wait_bulk_stores(kPending);
}
template <int kPending>
inline void bulk_wait_read() {
  emulation::wait_bulk_stores(kPending);
}
template <int kRank>
inline void tensor_load(void* to, const CUtensorMap* map, const int (&at)[kRank], uint64_t* barrier,
                        Site site = Site::here()) {
  static_assert(kRank >= 2 && kRank <= 4, "tensor copies of rank 2 to 4");
  emulation::start_tensor_load(to, map, kRank, at, barrier, site);
}
template <int kRank>
inline void tensor_store(const void* from, const CUtensorMap* map, const int (&at)[kRank], Site site = Site::here()) {
  static_assert(kRank >= 2 && kRank <= 4, "tensor copies of rank 2 to 4");
  emulation::start_tensor_store(from, map, kRank, at, site);
}
inline void prefetch_tensor_map(const CUtensorMap*) {}

#endif

}  // namespace tokenmill::ptx
