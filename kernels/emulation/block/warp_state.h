#pragma once
// Where lanes of a warp meet. Internal to kernels/emulation/block.
#include <cstdint>

#include "kernels/emulation/block/site.h"

namespace tokenmill::emulation {

/// What the lanes of a mask brought; entries outside the mask are null.
struct WarpOperands {
  uint32_t mask;
  void* lanes[32];
};

/// Runs once, on the last lane that arrives, for all of them.
using WarpAction = void (*)(const WarpOperands& operands, Site site);

/// One collective under way: some lanes of the mask have arrived.
struct WarpMeeting {
  uint32_t mask = 0, arrived = 0;
  WarpAction action = nullptr;
  Site site{};
  unsigned round = 0;
  char ordered[2] = {};  // TSan tokens of even and odd rounds
};

struct Warp {
  uint32_t live = 0, ready = 0;
  unsigned last_lane = 31;       // that ran; the search for the next starts behind it
  uint32_t at_barrier[16] = {};  // lanes that wait there
  WarpMeeting meetings[32];      // lanes that wait are in one each
  uint32_t active_meetings = 0;  // whose `arrived` is not 0
};

/// Meets the lanes of `mask` at one call; returns when `action` has run. `ordered`: memory accesses before it come
/// before those after it, for all of the mask (TSan).
void meet_warp(uint32_t mask, WarpAction action, void* operands, bool ordered, const char* what, Site site);

/// Fails when the lane that leaves the kernel is one that a meeting waits for.
void check_meetings_at_exit(const Warp& warp, unsigned lane);

}  // namespace tokenmill::emulation
