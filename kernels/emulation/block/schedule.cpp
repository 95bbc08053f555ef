#include "kernels/emulation/block/schedule.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <exception>

namespace tokenmill::emulation {

namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kGuardBytes = 4096;

/// Stacks that start at equal offsets would share the same few cache sets.
size_t stack_size(const Fiber& fiber) { return kStackBytes - fiber.linear * 576 % 16384; }

char* stack_low(const Fiber& fiber) { return static_cast<char*>(const_cast<void*>(fiber.stack.low)); }

void make_stack(Fiber& fiber) {
  void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) std::abort();
  fiber.stack.low = static_cast<char*>(memory) + kGuardBytes;
  fiber.stack.size = kStackBytes;
  sanitizer::renew(fiber.stack);
}

/// The lane to run next, behind the one that ran last.
unsigned next_lane(const Block& block, const Warp& warp) {
  if (block.order == Order::kReverse) {
    const unsigned shift = 32 - warp.last_lane;  // the lane below last_lane becomes bit 31
    return (31 - std::countl_zero(std::rotl(warp.ready, static_cast<int>(shift & 31))) - shift) & 31;
  }
  const unsigned first = (warp.last_lane + 1) & 31;
  return (std::countr_zero(std::rotr(warp.ready, static_cast<int>(first))) + first) & 31;
}

void enter(Block& block, Context& from_context, sanitizer::Stack& from_stack, Fiber& to, bool last) {
  block.came_from = &from_stack;
  current_thread = &to;
  block.warps[to.warp].last_lane = to.lane;
  sanitizer::before_switch(from_stack, to.stack, last);
  switch_context(from_context, to.context);
  sanitizer::after_switch(from_stack, block.came_from);
}

void leave_kernel(Block& block, Fiber& fiber) {
  Warp& warp = block.warps[fiber.warp];
  check_meetings_at_exit(warp, fiber.lane);
  check_async_copies_at_exit(fiber);
  sanitizer::release(block.end_token());
  warp.live &= ~(1u << fiber.lane);
  warp.ready &= ~(1u << fiber.lane);
  --block.num_live;
  fiber.abandoned = false;
  release_barriers_after_exit(block);
}

/// The kernel on the running fiber, from its first line to its end or to its failure.
void run_thread(Block& block, Fiber& fiber) {
  try {
    (*block.thread_body)();
    leave_kernel(block, fiber);
  } catch (const KernelFailure&) {
  } catch (const std::exception& e) {
    block.error = std::string("the kernel threw an exception: ") + e.what();
  }
}

[[noreturn]] void fiber_main() {
  Block& block = this_block();
  Fiber& fiber = this_fiber();
  sanitizer::after_switch(fiber.stack, block.came_from);
  sanitizer::acquire(&block.grid_start);
  sanitizer::acquire(block.previous_end_token());
  run_thread(block, fiber);
  const Warp& warp = block.warps[fiber.warp];
  if (block.failed() || warp.ready == 0) {
    run_host(block, fiber, /*last=*/true);
  } else {
    enter(block, fiber.context, fiber.stack, block.fiber(fiber.warp, next_lane(block, warp)), /*last=*/true);
  }
  std::abort();
}

void start_fiber(Block& block, unsigned linear) {
  Fiber& fiber = block.fibers[linear];
  const dim3& size = block.index.block_size;
  static_cast<Thread&>(fiber) = {.index = {linear % size.x, linear / size.x % size.y, linear / size.x / size.y},
                                 .linear = linear,
                                 .warp = linear / kWarpSize,
                                 .lane = linear % kWarpSize,
                                 .block = &block.index};
  if (!fiber.stack.low) make_stack(fiber);
  if (fiber.abandoned) sanitizer::renew(fiber.stack);
  fiber.abandoned = true;  // until it leaves the kernel
  fiber.waits_for = nullptr;
  AsyncCopies& copies = fiber.async_copies;
  fiber.num_store_groups = fiber.num_wgmma_groups = 0;
  copies.first = copies.end = copies.first_group = copies.end_group = 0;
  start_context(fiber.context, stack_low(fiber), stack_size(fiber), fiber_main);
}

void start_warps(Block& block) {
  for (unsigned w = 0; w < block.num_warps; ++w) {
    const unsigned num_lanes = std::min(kWarpSize, block.num_threads - w * kWarpSize);
    Warp& warp = block.warps[w];
    warp.live = warp.ready = num_lanes == kWarpSize ? ~0u : (1u << num_lanes) - 1;
    warp.last_lane = block.order == Order::kForward ? 31 : block.order == Order::kReverse ? 0 : block.random() % 32;
  }
}

/// Runs a warp until all its lanes wait or one of them yields.
void run_warp(Block& block, unsigned w) {
  Warp& warp = block.warps[w];
  if (block.order == Order::kRandom) warp.last_lane = block.random() % 32;
  enter(block, block.host_context, block.host_stack, block.fiber(w, next_lane(block, warp)), /*last=*/false);
}

/// What the threads of a block that cannot go on wait for, most of them first.
std::string deadlock_report(const Block& block) {
  struct Group {
    const char* what;
    Site site;
    int count;
  } groups[4] = {};
  int num_groups = 0, others = 0;
  for (unsigned i = 0; i < block.num_threads; ++i) {
    const Fiber& fiber = block.fibers[i];
    if (!fiber.waits_for) continue;
    Group* end = groups + num_groups;
    Group* group = std::find_if(groups, end, [&](const Group& g) { return same_site(g.site, fiber.site); });
    if (group == end && num_groups == 4) {
      ++others;
      continue;
    }
    if (group == end) groups[num_groups++] = {fiber.waits_for, fiber.site, 0};
    ++group->count;
  }
  std::string text;
  for (int g = 0; g < num_groups; ++g) {
    if (g == 0) text = to_string(groups[g].site) + ": deadlock:";
    text += " " + std::to_string(groups[g].count) + " threads wait for " + groups[g].what + " at " +
            to_string(groups[g].site) + ",";
  }
  if (others > 0) text += " " + std::to_string(others) + " elsewhere,";
  text += " " + std::to_string(block.num_threads - block.num_live) + " have exited" + describe_waited_barriers(block);
  const uint3 b = block.index.block;
  return text + " [block (" + std::to_string(b.x) + "," + std::to_string(b.y) + "," + std::to_string(b.z) + ")]";
}

void run_until_exit(Block& block) {
  unsigned warps[kMaxWarps];
  for (unsigned i = 0; i < block.num_warps; ++i)
    warps[i] = block.order == Order::kReverse ? block.num_warps - 1 - i : i;
  while (block.num_live > 0) {
    bool any = false;
    if (block.order == Order::kRandom) {
      for (unsigned i = block.num_warps - 1; i > 0; --i) std::swap(warps[i], warps[block.random() % (i + 1)]);
    }
    for (unsigned i = 0; i < block.num_warps; ++i) {
      if (block.warps[warps[i]].ready == 0) continue;
      any = true;
      run_warp(block, warps[i]);
      if (block.failed()) return;
    }
    const bool loaded = (!any || (block.order == Order::kRandom && block.random() % 4 == 0)) && run_one_load(block);
    if (!any && !loaded) {
      block.error = deadlock_report(block);
      return;
    }
  }
}

}  // namespace

void run_another(Block& block, Fiber& from) {
  Warp& warp = block.warps[from.warp];
  if (warp.ready == 0) {
    run_host(block, from, /*last=*/false);
  } else {
    enter(block, from.context, from.stack, block.fiber(from.warp, next_lane(block, warp)), /*last=*/false);
  }
}

void run_host(Block& block, Fiber& from, bool last) {
  block.came_from = &from.stack;
  sanitizer::before_switch(from.stack, block.host_stack, last);
  switch_context(from.context, block.host_context);
  sanitizer::after_switch(from.stack, block.came_from);
}

void run_block(Block& block, const dim3& block_size, size_t dynamic_smem) {
  block.num_threads = block.num_live = block_size.x * block_size.y * block_size.z;
  block.num_warps = (block.num_threads + kWarpSize - 1) / kWarpSize;
  ++block.num_blocks_begun;
  block.shared.start(dynamic_smem);
  start_async(block);
  start_warpgroups(block);
  for (unsigned i = 0; i < block.num_threads; ++i) start_fiber(block, i);
  start_warps(block);
  run_until_exit(block);
  if (!block.failed()) block.error = check_async_at_end(block);
  if (!block.failed()) block.error = check_wgmma_at_end(block);
  block.shared.finish();
  if (!block.failed()) return;
  for (unsigned i = 0; i < block.num_threads; ++i) {
    if (block.fibers[i].abandoned) sanitizer::abandon(block.fibers[i].stack, block.host_stack, block.end_token());
  }
  sanitizer::abandon(block.async.engine, block.host_stack, block.end_token());
  for (BarrierState& barrier : block.barriers) barrier = {};
  for (unsigned w = 0; w < kMaxWarps; ++w) block.warps[w] = {};
}

void free_stack(Fiber& fiber) {
  if (!fiber.stack.low) return;
  sanitizer::destroy(fiber.stack);
  munmap(stack_low(fiber) - kGuardBytes, kGuardBytes + kStackBytes);
}

}  // namespace tokenmill::emulation
