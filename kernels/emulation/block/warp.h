#pragma once
// Warp collectives as kernels reach them. Each stops the lane until all lanes of the mask have come to the same call.
#include <cstdint>

#include "kernels/emulation/block/site.h"

namespace tokenmill::emulation {

enum class Shuffle { kIndex, kUp, kDown, kXor };
/// `argument`: source lane, distance or lane mask. A lane outside the mask as source gives 0xDEADBEEFDEADBEEF.
uint64_t shuffle(Shuffle kind, uint32_t mask, uint64_t value, int argument, int width, Site site);

/// The lanes whose predicate is true.
uint32_t ballot(uint32_t mask, bool predicate, Site site);

/// The lanes of the mask whose value equals the caller's.
uint32_t match_any(uint32_t mask, uint64_t value, Site site);

enum class Reduce { kAdd, kMin, kMax, kAnd, kOr, kXor };
uint32_t reduce(Reduce operation, bool is_signed, uint32_t mask, uint32_t value, Site site);

/// The only collective that orders memory accesses.
void sync_warp(uint32_t mask, Site site);

}  // namespace tokenmill::emulation
