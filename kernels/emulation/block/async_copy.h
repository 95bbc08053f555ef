#pragma once
// cp.async as kernels/cuda/ptx.h reaches it. The bytes move when the group is waited for; until then the destination
// holds NaN, so a forgotten wait shows in the result.
#include "kernels/emulation/block/site.h"

namespace tokenmill::emulation {

/// 4, 8 or 16 bytes; of these the first `source_bytes` come from `from`, the others become zero.
void start_async_copy(void* to, const void* from, int bytes, int source_bytes, Site site);
void commit_async_copies();
/// Completes all groups of the calling thread but the last `num_pending`.
void wait_async_copies(int num_pending);
/// Completes everything, committed or not.
void wait_all_async_copies();

}  // namespace tokenmill::emulation
