#pragma once
// What a kernel sees of the thread that runs it.
#include <vector_types.h>

#include <cstdint>

#include "kernels/emulation/block/site.h"

namespace tokenmill::emulation {

struct BlockIndex {
  uint3 block;
  dim3 block_size;
  dim3 grid_size;
};

struct Thread {
  uint3 index;
  uint32_t linear, warp, lane;  // warp = linear / 32, lane = linear % 32
  const BlockIndex* block;
};

/// The CUDA thread that runs on this OS thread; null outside kernels.
extern __thread Thread* current_thread __attribute__((tls_model("initial-exec")));

/// __trap: fails the launch.
[[noreturn]] void trap(Site site);

}  // namespace tokenmill::emulation
