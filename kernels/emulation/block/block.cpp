#include "kernels/emulation/block/block.h"

#include <sys/mman.h>

#include <bit>
#include <cstring>

#include "kernels/emulation/block/schedule.h"

namespace tokenmill::emulation {

__thread Thread* current_thread = nullptr;
__thread Block* current_block = nullptr;

Block::~Block() {
  for (unsigned i = 0; i < kMaxThreads; ++i) {
    free_stack(fibers[i]);
    free_async_copies(fibers[i].async_copies);
  }
  sanitizer::destroy(async.engine);
}

uint64_t Block::random() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

void wait_for(const char* what, Site site) {
  Fiber& fiber = this_fiber();
  fiber.waits_for = what;
  fiber.site = site;
  this_warp().ready &= ~(1u << fiber.lane);
  run_another(this_block(), fiber);
}

void yield() { run_host(this_block(), this_fiber(), /*last=*/false); }

void make_ready(Block& block, unsigned warp, uint32_t lanes) {
  block.warps[warp].ready |= lanes;
  for (; lanes != 0; lanes &= lanes - 1) block.fiber(warp, std::countr_zero(lanes)).waits_for = nullptr;
}

void fail(Site site, const std::string& text) {
  Block& block = this_block();
  const auto triple = [](const auto& v) {
    return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
  };
  block.error = to_string(site) + ": " + text + " [block " + triple(block.index.block) + ", thread " +
                triple(current_thread->index) + "]";
  throw KernelFailure{};
}

void trap(Site site) { fail(site, "__trap"); }

std::string to_string(Site site) { return std::string(site.file) + ":" + std::to_string(site.line); }

bool same_site(Site a, Site b) {
  return a.line == b.line && a.column == b.column && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

}  // namespace tokenmill::emulation
