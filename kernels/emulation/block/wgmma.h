#pragma once
// wgmma as kernels/cuda/ptx.h reaches it: products of 128 threads (a warpgroup: four warps, the first a multiple of
// four). A product runs at the wait that covers it; until then the accumulators hold NaN.
#include <cstdint>

#include "kernels/emulation/block/mma.h"
#include "kernels/emulation/block/site.h"

namespace tokenmill::emulation {

struct WgmmaCall {
  MmaType type;       // kBf16 or kF16
  int n;              // m64nNk16; a multiple of 8 up to 256
  const uint32_t* a;  // A's four registers; null: A is in shared memory
  uint64_t a_descriptor, b_descriptor;
  bool a_transposed, b_transposed;  // the operand's contiguous dimension is M or N instead of K
  bool accumulate;                  // D += A B, else D = A B
};

void fence_wgmma();
void start_wgmma(float* d, const WgmmaCall& call, Site site);
void commit_wgmma();
void wait_wgmma(int num_pending, Site site);

}  // namespace tokenmill::emulation
