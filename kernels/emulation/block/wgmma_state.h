#pragma once
// Warpgroups of a block and their products under way. Internal to kernels/emulation/block.
#include <cstdint>
#include <string>

#include "kernels/emulation/block/site.h"
#include "kernels/emulation/block/wgmma.h"

namespace tokenmill::emulation {

constexpr unsigned kWarpgroupSize = 128, kMaxWarpgroups = 8;

/// Accumulators that products are under way for: their values so far, out of the kernel's sight.
struct WgmmaChain {
  float* d[kWarpgroupSize];
  float values[kWarpgroupSize][128];
};

struct WgmmaProduct {
  WgmmaCall call;
  uint32_t a[kWarpgroupSize][4];
  int chain;
  unsigned group;
  Site site;
};

struct Warpgroup {
  static constexpr int kMaxProducts = 64, kMaxChains = 16;
  // Of the instruction at which threads of the warpgroup meet.
  unsigned num_arrived;
  const char* what;
  Site site;
  void* operands[kWarpgroupSize];

  WgmmaProduct products[kMaxProducts];
  int num_products;
  WgmmaChain chains[kMaxChains];
  bool chain_used[kMaxChains];
  bool fenced[kWarpgroupSize];  // by wgmma.fence since the thread's last wait
};

/// Memory of the block's warpgroups, made when the first product starts.
struct WarpgroupStates {
  ~WarpgroupStates();
  Warpgroup* groups = nullptr;  // [kMaxWarpgroups]
};

struct Block;
void start_warpgroups(Block& block);
/// Why a block that has ended must not have: products never waited for. Empty: all is well.
std::string check_wgmma_at_end(const Block& block);

}  // namespace tokenmill::emulation
