#pragma once
// The running block: its fibers, one per CUDA thread, and the state that they meet in. Internal to
// kernels/emulation/block.
//
// Code that runs on a fiber must not allocate (TSan sees malloc) except to report a failure, and must leave standard
// containers alone: their functions are shared with instrumented code.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/emulation/block/async_copy_state.h"
#include "kernels/emulation/block/barrier_state.h"
#include "kernels/emulation/block/context.h"
#include "kernels/emulation/block/mbarrier_state.h"
#include "kernels/emulation/block/sanitizer.h"
#include "kernels/emulation/block/shared_arena.h"
#include "kernels/emulation/block/site.h"
#include "kernels/emulation/block/thread.h"
#include "kernels/emulation/block/warp_state.h"
#include "kernels/emulation/block/wgmma_state.h"

namespace tokenmill::emulation {

constexpr unsigned kWarpSize = 32, kMaxThreads = 1024, kMaxWarps = kMaxThreads / kWarpSize;

struct Fiber : Thread {
  Context context;
  sanitizer::Stack stack;
  const char* waits_for = nullptr;  // a literal, for deadlock reports; null while the fiber runs or may run
  Site site{};
  void* operands = nullptr;  // what it brought to the meeting that it waits in
  bool abandoned = false;    // its block failed while it was inside the kernel
  AsyncCopies async_copies;
  unsigned num_store_groups = 0;  // committed bulk stores
  unsigned num_wgmma_groups = 0;  // committed wgmma groups
};

enum class Order { kForward, kReverse, kRandom };

struct Block {
  ~Block();

  BlockIndex index{};
  unsigned num_threads = 0, num_warps = 0, num_live = 0;
  std::unique_ptr<Fiber[]> fibers{new Fiber[kMaxThreads]};
  std::unique_ptr<Warp[]> warps{new Warp[kMaxWarps]};
  BarrierState barriers[kNumBarriers];
  SharedArena shared;
  AsyncState async;
  WarpgroupStates warpgroups;

  Order order = Order::kForward;
  uint64_t random_state = 1;
  const std::function<void()>* thread_body = nullptr;
  std::string error;  // of the first failure; empty: none

  Context host_context;  // of the OS thread that called run_grid
  sanitizer::Stack host_stack;
  sanitizer::Stack* came_from = nullptr;  // the stack that ran before the last switch
  // TSan tokens: the host before the grid -> threads; threads -> the threads of the next block, which get the same
  // shared memory, and the host. Not -> later threads of their own block: a race with one that has left is a race.
  char grid_start = 0, block_end[2] = {};
  unsigned num_blocks_begun = 0;
  char* end_token() { return &block_end[num_blocks_begun & 1]; }
  char* previous_end_token() { return &block_end[~num_blocks_begun & 1]; }

  uint64_t random();  // xorshift

  Fiber& fiber(unsigned warp, unsigned lane) { return fibers[warp * kWarpSize + lane]; }
  bool failed() const { return !error.empty(); }
};

/// The block that runs on this OS thread; null outside run_grid.
extern __thread Block* current_block __attribute__((tls_model("initial-exec")));

inline Block& this_block() { return *current_block; }
inline Fiber& this_fiber() { return *static_cast<Fiber*>(current_thread); }
inline Warp& this_warp() { return this_block().warps[current_thread->warp]; }

/// Stops the running fiber until make_ready names it. `what` is a literal: what a deadlock report says it waits for.
void wait_for(const char* what, Site site);

/// Lets every other fiber that can run do so before the running one goes on.
void yield();

/// Lets the lanes of a warp run again.
void make_ready(Block& block, unsigned warp, uint32_t lanes);

/// Unwinds the thread that fails up to the start of its fiber; kernels do not catch it.
struct KernelFailure {};

/// Records the failure of the block, with kernel code's place and the thread, and leaves the kernel for good.
[[noreturn]] void fail(Site site, const std::string& text);

/// "kernels/cuda/norm.cu:48"
std::string to_string(Site site);
/// Whether both are the same call in the source.
bool same_site(Site a, Site b);

}  // namespace tokenmill::emulation
