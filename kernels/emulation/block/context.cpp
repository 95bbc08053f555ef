#include "kernels/emulation/block/context.h"

#ifdef TOKENMILL_EMULATION_UCONTEXT

namespace tokenmill::emulation {

void start_context(Context& context, char* low, size_t size, void (*entry)()) {
  getcontext(&context.registers);
  context.registers.uc_stack = {.ss_sp = low, .ss_flags = 0, .ss_size = size};
  context.registers.uc_link = nullptr;
  makecontext(&context.registers, entry, 0);
}

void switch_context(Context& from, Context& to) { swapcontext(&from.registers, &to.registers); }

}  // namespace tokenmill::emulation

#else

// System V ABI: rdi = where to save the stack pointer, rsi = the one to go on with.
extern "C" void tokenmill_emulation_switch(void** save_stack_pointer, void* load_stack_pointer);
asm(R"(
.text
.globl tokenmill_emulation_switch
.hidden tokenmill_emulation_switch
.type tokenmill_emulation_switch, @function
tokenmill_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tokenmill_emulation_switch, . - tokenmill_emulation_switch
)");

namespace tokenmill::emulation {

void start_context(Context& context, char* low, size_t size, void (*entry)()) {
  auto** top = reinterpret_cast<void**>(low + size);  // 16-byte aligned, as after a call's return address was popped
  *--top = nullptr;                                   // entry's return address: where backtraces end
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  context.stack_pointer = top;
}

void switch_context(Context& from, Context& to) { tokenmill_emulation_switch(&from.stack_pointer, to.stack_pointer); }

}  // namespace tokenmill::emulation

#endif
