#pragma once
// Block-wide barriers as kernels reach them.
#include "kernels/emulation/block/site.h"

namespace tokenmill::emulation {

/// __syncthreads and its forms with a predicate: how many predicates were true, of how many threads.
struct Votes {
  int num_true, num_threads;
};
Votes sync_threads(int predicate, Site site);

/// bar.sync and bar.arrive: `num_threads` threads of the block, a multiple of 32, meet at barrier `id` of 0 to 15.
void sync_named_barrier(int id, int num_threads, Site site);
void arrive_named_barrier(int id, int num_threads, Site site);

}  // namespace tokenmill::emulation
