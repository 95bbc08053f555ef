#pragma once
// Switching between stacks: callee-saved registers and the stack pointer. Written by hand for x86-64, because
// swapcontext changes the signal mask with two system calls a round trip; TOKENMILL_EMULATION_UCONTEXT and other
// machines use it.
#include <cstddef>

#if !defined(__x86_64__) && !defined(TOKENMILL_EMULATION_UCONTEXT)
#define TOKENMILL_EMULATION_UCONTEXT 1
#endif
#ifdef TOKENMILL_EMULATION_UCONTEXT
#include <ucontext.h>
#endif

namespace tokenmill::emulation {

struct Context {
#ifdef TOKENMILL_EMULATION_UCONTEXT
  ucontext_t registers;
#else
  void* stack_pointer = nullptr;
#endif
};

/// Makes `context` start at entry() on the stack [low, low + size) when it is switched to. entry never returns.
void start_context(Context& context, char* low, size_t size, void (*entry)());

/// Saves the running context in `from` and goes on with `to`; returns when something switches back to `from`.
void switch_context(Context& from, Context& to);

}  // namespace tokenmill::emulation
