#pragma once
// Atomics, fences and loads with cache hints under their CUDA names.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace tokenmill::emulation {

/// Replaces *p by update(*p) in one step and returns what it was.
template <typename T, typename Update>
T atomic_update(T* p, Update update) {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
  static_assert(sizeof(T) == sizeof(Bits));
  auto* bits = reinterpret_cast<Bits*>(p);
  Bits seen = __atomic_load_n(bits, __ATOMIC_RELAXED);
  while (true) {
    T before;
    __builtin_memcpy(static_cast<void*>(&before), &seen, sizeof before);
    const T after = update(before);
    Bits wanted;
    __builtin_memcpy(&wanted, &after, sizeof wanted);
    if (__atomic_compare_exchange_n(bits, &seen, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return before;
  }
}

template <typename T>
concept AtomicInteger = std::is_integral_v<T> &&(sizeof(T) == 4 || sizeof(T) == 8);

template <typename T>
concept AtomicNumber =
    AtomicInteger<T> || std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, __half> ||
    std::is_same_v<T, __half2> || std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, __nv_bfloat162>;

}  // namespace tokenmill::emulation

template <tokenmill::emulation::AtomicNumber T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  return tokenmill::emulation::atomic_update(p, [&](T old) -> T { return old + v; });
}
template <tokenmill::emulation::AtomicInteger T>
T atomicSub(T* p, std::type_identity_t<T> v) {
  return tokenmill::emulation::atomic_update(p, [&](T old) -> T { return old - v; });
}
template <tokenmill::emulation::AtomicInteger T>
T atomicMax(T* p, std::type_identity_t<T> v) {
  return tokenmill::emulation::atomic_update(p, [&](T old) { return old < v ? v : old; });
}
template <tokenmill::emulation::AtomicInteger T>
T atomicMin(T* p, std::type_identity_t<T> v) {
  return tokenmill::emulation::atomic_update(p, [&](T old) { return v < old ? v : old; });
}
template <tokenmill::emulation::AtomicInteger T>
T atomicAnd(T* p, std::type_identity_t<T> v) {
  return tokenmill::emulation::atomic_update(p, [&](T old) { return old & v; });
}
template <tokenmill::emulation::AtomicInteger T>
T atomicOr(T* p, std::type_identity_t<T> v) {
  return tokenmill::emulation::atomic_update(p, [&](T old) { return old | v; });
}
template <tokenmill::emulation::AtomicInteger T>
T atomicXor(T* p, std::type_identity_t<T> v) {
  return tokenmill::emulation::atomic_update(p, [&](T old) { return old ^ v; });
}
inline unsigned atomicInc(unsigned* p, unsigned limit) {
  return tokenmill::emulation::atomic_update(p, [&](unsigned old) { return old >= limit ? 0 : old + 1; });
}
inline unsigned atomicDec(unsigned* p, unsigned limit) {
  return tokenmill::emulation::atomic_update(p,
                                             [&](unsigned old) { return old == 0 || old > limit ? limit : old - 1; });
}
template <typename T>
requires tokenmill::emulation::AtomicInteger<T> || std::is_same_v<T, float> T atomicExch(T* p,
                                                                                         std::type_identity_t<T> v) {
  return tokenmill::emulation::atomic_update(p, [&](T) { return v; });
}
template <typename T>
requires tokenmill::emulation::AtomicInteger<T> || std::is_same_v<T, unsigned short> T
atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> v) {
  return tokenmill::emulation::atomic_update(p, [&](T old) { return old == expected ? v : old; });
}

// One OS thread runs a grid, so a fence has nothing to do for it; threads that run other grids see the order.
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

template <typename T>
T __ldg(const T* p) {
  return *p;
}
template <typename T>
T __ldcs(const T* p) {
  return *p;
}
template <typename T>
T __ldca(const T* p) {
  return *p;
}
template <typename T>
T __ldcg(const T* p) {
  return *p;
}
template <typename T>
void __stcs(T* p, std::type_identity_t<T> v) {
  *p = v;
}
template <typename T>
void __stcg(T* p, std::type_identity_t<T> v) {
  *p = v;
}
template <typename T>
void __stwt(T* p, std::type_identity_t<T> v) {
  *p = v;
}
