#pragma once
// The block's sixteen barriers. Internal to kernels/emulation/block.
#include "kernels/emulation/block/site.h"

namespace tokenmill::emulation {

struct Block;

constexpr int kNumBarriers = 16;

struct BarrierState {
  int num_arrived = 0;
  int num_expected = 0;                     // 0: every live thread of the block
  Site first_site{};                        // of the round's first arrival
  int num_true = 0;                         // predicates of this round
  int true_result = 0, arrived_result = 0;  // of the last complete round
  unsigned round = 0;
  char ordered[2] = {};  // TSan tokens of even and odd rounds
};

/// Exited threads do not count: completes the barriers that waited for the one that has just gone.
void release_barriers_after_exit(Block& block);

}  // namespace tokenmill::emulation
