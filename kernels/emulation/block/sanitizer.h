#pragma once
// What the sanitizers are told by hand. The core is not instrumented; these calls describe its stack switches, what
// orders one CUDA thread after another, and the accesses that it makes on a kernel's behalf. Without a sanitizer all
// are empty.
#include <cstddef>
#include <cstdint>

#ifdef TOKENMILL_EMULATION_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef TOKENMILL_EMULATION_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_read_range(void* address, unsigned long size);
void __tsan_write_range(void* address, unsigned long size);
}
#endif

namespace tokenmill::emulation::sanitizer {

/// One stack's standing with the sanitizers.
struct Stack {
  const void* low = nullptr;  // ASan's bounds
  size_t size = 0;
  void* fake_stack = nullptr;
  void* fiber = nullptr;  // TSan's identity
};

/// Before the switch from one stack to another; `last` when `from` will never run again.
inline void before_switch([[maybe_unused]] Stack& from, [[maybe_unused]] const Stack& to, [[maybe_unused]] bool last) {
#ifdef TOKENMILL_EMULATION_ASAN
  __sanitizer_start_switch_fiber(last ? nullptr : &from.fake_stack, to.low, to.size);
#endif
#ifdef TOKENMILL_EMULATION_TSAN
  __tsan_switch_to_fiber(to.fiber, 1);  // 1: a switch orders nothing
#endif
}

/// After the switch, on the stack that now runs; `previous` gets the bounds of the one that ran when they are not
/// known.
inline void after_switch([[maybe_unused]] const Stack& now, [[maybe_unused]] Stack* previous) {
#ifdef TOKENMILL_EMULATION_ASAN
  if (previous) {
    __sanitizer_finish_switch_fiber(now.fake_stack, &previous->low, &previous->size);
  } else {
    __sanitizer_finish_switch_fiber(now.fake_stack, nullptr, nullptr);
  }
#endif
}

/// Gives a stack that a new thread starts on a fresh identity and no leftover frames of an abandoned one.
inline void renew([[maybe_unused]] Stack& stack) {
#ifdef TOKENMILL_EMULATION_ASAN
  __asan_unpoison_memory_region(stack.low, stack.size);
  stack.fake_stack = nullptr;
#endif
#ifdef TOKENMILL_EMULATION_TSAN
  if (stack.fiber) __tsan_destroy_fiber(stack.fiber);
  stack.fiber = __tsan_create_fiber(0);
#endif
}

/// What a stack that never runs again has done is ordered before what follows acquire(token).
inline void abandon([[maybe_unused]] const Stack& stack, [[maybe_unused]] const Stack& now,
                    [[maybe_unused]] void* token) {
#ifdef TOKENMILL_EMULATION_TSAN
  __tsan_switch_to_fiber(stack.fiber, 1);
  __tsan_release(token);
  __tsan_switch_to_fiber(now.fiber, 1);
#endif
}

inline void destroy([[maybe_unused]] Stack& stack) {
#ifdef TOKENMILL_EMULATION_TSAN
  if (stack.fiber) __tsan_destroy_fiber(stack.fiber);
  stack.fiber = nullptr;
#endif
}

/// An identity without a stack, for work that no thread does.
inline void make_identity([[maybe_unused]] Stack& stack) {
#ifdef TOKENMILL_EMULATION_TSAN
  if (!stack.fiber) stack.fiber = __tsan_create_fiber(0);
#endif
}

/// Goes on with the identity of another stack, on this one. Orders nothing.
inline void become([[maybe_unused]] const Stack& stack) {
#ifdef TOKENMILL_EMULATION_TSAN
  __tsan_switch_to_fiber(stack.fiber, 1);
#endif
}

/// The identity of the running OS thread's own stack.
inline void adopt_current([[maybe_unused]] Stack& stack) {
#ifdef TOKENMILL_EMULATION_TSAN
  stack.fiber = __tsan_get_current_fiber();
#endif
}

/// What happened before release(token) is ordered before what follows acquire(token).
inline void release([[maybe_unused]] void* token) {
#ifdef TOKENMILL_EMULATION_TSAN
  __tsan_release(token);
#endif
}
inline void acquire([[maybe_unused]] void* token) {
#ifdef TOKENMILL_EMULATION_TSAN
  __tsan_acquire(token);
#endif
}

/// An access of the running thread that the core makes for it; TSan reports it when it races.
inline void note_read([[maybe_unused]] const void* address, [[maybe_unused]] size_t size) {
#ifdef TOKENMILL_EMULATION_TSAN
  __tsan_read_range(const_cast<void*>(address), size);
#endif
}
inline void note_write([[maybe_unused]] void* address, [[maybe_unused]] size_t size) {
#ifdef TOKENMILL_EMULATION_TSAN
  __tsan_write_range(address, size);
#endif
}

inline void poison([[maybe_unused]] void* address, [[maybe_unused]] size_t size) {
#ifdef TOKENMILL_EMULATION_ASAN
  __asan_poison_memory_region(address, size);
#endif
}
inline void unpoison([[maybe_unused]] void* address, [[maybe_unused]] size_t size) {
#ifdef TOKENMILL_EMULATION_ASAN
  __asan_unpoison_memory_region(address, size);
#endif
}
/// Whether ASan knows a byte of the range that must not be touched.
inline bool is_poisoned([[maybe_unused]] const void* address, [[maybe_unused]] size_t size) {
#ifdef TOKENMILL_EMULATION_ASAN
  return __asan_region_is_poisoned(const_cast<void*>(address), size) != nullptr;
#else
  return false;
#endif
}

/// memset and memcpy that no sanitizer intercepts: for what the core does on its own account.
inline void quiet_fill(void* address, unsigned char value, size_t size) {
#ifdef __x86_64__
  asm volatile("rep stosb" : "+D"(address), "+c"(size) : "a"(value) : "memory");
#else
  for (auto* p = static_cast<volatile unsigned char*>(address); size > 0; --size) *p++ = value;
#endif
}
inline void quiet_copy(void* to, const void* from, size_t size) {
#ifdef __x86_64__
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
#else
  auto* p = static_cast<volatile unsigned char*>(to);
  for (auto* q = static_cast<const unsigned char*>(from); size > 0; --size) *p++ = *q++;
#endif
}

}  // namespace tokenmill::emulation::sanitizer
