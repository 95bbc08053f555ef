#pragma once
// Which fiber of a block runs next. Internal to kernels/emulation/block.
#include "kernels/emulation/block/block.h"

namespace tokenmill::emulation {

/// Goes from the running fiber to the next ready lane of its warp, or to the scheduler when there is none.
void run_another(Block& block, Fiber& from);

/// Goes from the running fiber back to the scheduler; `last`: for good.
void run_host(Block& block, Fiber& from, bool last);

/// Starts the threads of one block and runs them until all have exited or one has failed.
void run_block(Block& block, const dim3& block_size, size_t dynamic_smem);

void free_stack(Fiber& fiber);

}  // namespace tokenmill::emulation
