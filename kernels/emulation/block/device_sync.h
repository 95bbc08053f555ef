#pragma once
// __syncthreads, warp collectives and their kin under their CUDA names.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>
#include <type_traits>

#include "kernels/emulation/block/barrier.h"
#include "kernels/emulation/block/thread.h"
#include "kernels/emulation/block/warp.h"

namespace tokenmill::emulation {

template <typename T>
concept Half = std::is_same_v<T, __half> || std::is_same_v<T, __half2> || std::is_same_v<T, __nv_bfloat16> ||
    std::is_same_v<T, __nv_bfloat162>;

/// What the device can shuffle: numbers of up to 64 bits.
template <typename T>
concept Shuffled = std::is_arithmetic_v<T> || Half<T>;

template <typename T>
uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  __builtin_memcpy(&bits, static_cast<const void*>(&value), sizeof value);
  return bits;
}

template <typename T>
T from_bits(uint64_t bits) {
  T value;
  __builtin_memcpy(static_cast<void*>(&value), &bits, sizeof value);
  return value;
}

template <typename T>
T shuffle_value(Shuffle kind, unsigned mask, T value, int argument, int width, Site site) {
  return from_bits<T>(shuffle(kind, mask, to_bits(value), argument, width, site));
}

template <typename T>
concept Reduced = std::is_same_v<T, int> || std::is_same_v<T, unsigned>;

template <Reduced T>
T reduce_value(Reduce operation, unsigned mask, T value, Site site) {
  return static_cast<T>(reduce(operation, std::is_signed_v<T>, mask, static_cast<uint32_t>(value), site));
}

}  // namespace tokenmill::emulation

inline void __syncthreads(tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  tokenmill::emulation::sync_threads(0, site);
}
inline int __syncthreads_or(int predicate, tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  return tokenmill::emulation::sync_threads(predicate, site).num_true > 0;
}
inline int __syncthreads_and(int predicate, tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  const auto votes = tokenmill::emulation::sync_threads(predicate, site);
  return votes.num_true == votes.num_threads;
}
inline int __syncthreads_count(int predicate, tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  return tokenmill::emulation::sync_threads(predicate, site).num_true;
}

template <tokenmill::emulation::Shuffled T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  return tokenmill::emulation::shuffle_value(tokenmill::emulation::Shuffle::kIndex, mask, value, source, width, site);
}
template <tokenmill::emulation::Shuffled T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32,
                 tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  return tokenmill::emulation::shuffle_value(tokenmill::emulation::Shuffle::kUp, mask, value,
                                             static_cast<int>(distance), width, site);
}
template <tokenmill::emulation::Shuffled T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32,
                   tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  return tokenmill::emulation::shuffle_value(tokenmill::emulation::Shuffle::kDown, mask, value,
                                             static_cast<int>(distance), width, site);
}
template <tokenmill::emulation::Shuffled T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  return tokenmill::emulation::shuffle_value(tokenmill::emulation::Shuffle::kXor, mask, value, lane_mask, width, site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  return tokenmill::emulation::ballot(mask, predicate != 0, site);
}
inline int __any_sync(unsigned mask, int predicate,
                      tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  return tokenmill::emulation::ballot(mask, predicate != 0, site) != 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  return tokenmill::emulation::ballot(mask, predicate == 0, site) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu,
                       tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  tokenmill::emulation::sync_warp(mask, site);
}
/// The calling lane alone: the device promises no more, and code that hopes for more should fail here.
inline unsigned __activemask() { return 1u << tokenmill::emulation::current_thread->lane; }

template <tokenmill::emulation::Shuffled T>
unsigned __match_any_sync(unsigned mask, T value,
                          tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  return tokenmill::emulation::match_any(mask, tokenmill::emulation::to_bits(value), site);
}
template <tokenmill::emulation::Shuffled T>
unsigned __match_all_sync(unsigned mask, T value, int* all_equal,
                          tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  *all_equal = tokenmill::emulation::match_any(mask, tokenmill::emulation::to_bits(value), site) == mask;
  return *all_equal ? mask : 0;
}

template <tokenmill::emulation::Reduced T>
T __reduce_add_sync(unsigned mask, T value, tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  return tokenmill::emulation::reduce_value(tokenmill::emulation::Reduce::kAdd, mask, value, site);
}
template <tokenmill::emulation::Reduced T>
T __reduce_min_sync(unsigned mask, T value, tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  return tokenmill::emulation::reduce_value(tokenmill::emulation::Reduce::kMin, mask, value, site);
}
template <tokenmill::emulation::Reduced T>
T __reduce_max_sync(unsigned mask, T value, tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  return tokenmill::emulation::reduce_value(tokenmill::emulation::Reduce::kMax, mask, value, site);
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value,
                                  tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  return tokenmill::emulation::reduce_value(tokenmill::emulation::Reduce::kAnd, mask, value, site);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value,
                                 tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  return tokenmill::emulation::reduce_value(tokenmill::emulation::Reduce::kOr, mask, value, site);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value,
                                  tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  return tokenmill::emulation::reduce_value(tokenmill::emulation::Reduce::kXor, mask, value, site);
}

[[noreturn]] inline void __trap(tokenmill::emulation::Site site = tokenmill::emulation::Site::here()) {
  tokenmill::emulation::trap(site);
}
