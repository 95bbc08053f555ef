#pragma once
// mbarrier and bulk copies as kernels/cuda/ptx.h reaches them. A bulk copy moves when the scheduler picks it: at the
// latest when no thread can run, at random moments in random orders. Until then a load's destination holds NaN.
#include <cstdint>

#include "kernels/emulation/block/site.h"

namespace tokenmill::emulation {

void init_mbarrier(uint64_t* barrier, int num_arrivals, Site site);
void invalidate_mbarrier(uint64_t* barrier, Site site);
/// Expects `bytes` more of copies in this phase; `arrives`: arrives too.
void arrive_mbarrier(uint64_t* barrier, uint32_t bytes, bool arrives, Site site);
/// Whether the phase of this parity is complete; lets other threads run when it is not.
bool test_mbarrier(uint64_t* barrier, int parity, Site site);
void wait_mbarrier(uint64_t* barrier, int parity, Site site);

/// cp.async.bulk, global to shared; the barrier counts its bytes.
void start_bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* barrier, Site site);
/// cp.async.bulk, shared to global, and the groups of the calling thread.
void start_bulk_store(void* to, const void* from, uint32_t bytes, Site site);
void commit_bulk_stores();
void wait_bulk_stores(int num_pending);

}  // namespace tokenmill::emulation
