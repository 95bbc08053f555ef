#include "kernels/emulation/block/barrier.h"

#include <string>

#include "kernels/emulation/block/block.h"

namespace tokenmill::emulation {

namespace {

/// Completes the round when all have arrived.
void try_release(Block& block, int id) {
  BarrierState& barrier = block.barriers[id];
  const int expected = barrier.num_expected > 0 ? barrier.num_expected : static_cast<int>(block.num_live);
  if (barrier.num_arrived == 0 || barrier.num_arrived < expected) return;
  barrier.true_result = barrier.num_true;
  barrier.arrived_result = barrier.num_arrived;
  barrier.num_arrived = barrier.num_true = 0;
  ++barrier.round;
  for (unsigned w = 0; w < block.num_warps; ++w) {
    const uint32_t lanes = block.warps[w].at_barrier[id];
    block.warps[w].at_barrier[id] = 0;
    make_ready(block, w, lanes);
  }
}

/// Arrives, and waits for the round's end when `waits`.
void arrive(int id, int num_expected, int predicate, bool waits, const char* what, Site site) {
  Block& block = this_block();
  BarrierState& barrier = block.barriers[id];
  if (barrier.num_arrived == 0) {
    barrier.first_site = site;
    barrier.num_expected = num_expected;
  }
  ++barrier.num_arrived;
  barrier.num_true += predicate != 0;
  char* token = &barrier.ordered[barrier.round & 1];
  sanitizer::release(token);
  const unsigned round = barrier.round;
  if (waits) this_warp().at_barrier[id] |= 1u << current_thread->lane;
  try_release(block, id);
  if (waits) {
    if (barrier.round == round) wait_for(what, site);
    sanitizer::acquire(token);
  }
}

void check_named(int id, int num_threads, Site site) {
  if (id < 0 || id >= kNumBarriers) fail(site, "named barrier " + std::to_string(id) + "; there are 0 to 15");
  if (num_threads <= 0 || num_threads % static_cast<int>(kWarpSize) != 0) {
    fail(site, "named barrier of " + std::to_string(num_threads) + " threads; the number must be a multiple of 32");
  }
  const BarrierState& barrier = this_block().barriers[id];
  if (barrier.num_arrived > 0 && barrier.num_expected != num_threads) {
    fail(site, "named barrier " + std::to_string(id) + " of " + std::to_string(num_threads) + " threads; those at " +
                   to_string(barrier.first_site) + " said " + std::to_string(barrier.num_expected));
  }
  if (barrier.num_arrived == num_threads) {
    fail(site,
         "named barrier " + std::to_string(id) + ": more than " + std::to_string(num_threads) + " threads arrive");
  }
}

}  // namespace

Votes sync_threads(int predicate, Site site) {
  BarrierState& barrier = this_block().barriers[0];
  if (barrier.num_arrived > 0 && !same_site(barrier.first_site, site)) {
    fail(site, "divergent __syncthreads: other threads of the block wait at " + to_string(barrier.first_site));
  }
  arrive(0, 0, predicate, /*waits=*/true, "__syncthreads", site);
  return {barrier.true_result, barrier.arrived_result};
}

void sync_named_barrier(int id, int num_threads, Site site) {
  check_named(id, num_threads, site);
  arrive(id, num_threads, 0, /*waits=*/true, "a named barrier", site);
}

void arrive_named_barrier(int id, int num_threads, Site site) {
  check_named(id, num_threads, site);
  arrive(id, num_threads, 0, /*waits=*/false, "a named barrier", site);
}

void release_barriers_after_exit(Block& block) {
  for (int id = 0; id < kNumBarriers; ++id) {
    if (block.barriers[id].num_expected == 0) try_release(block, id);
  }
}

}  // namespace tokenmill::emulation
