#include "kernels/emulation/block/wgmma.h"

#include <sys/mman.h>

#include <bit>
#include <cmath>
#include <cstdlib>

#include "kernels/emulation/block/block.h"
#include "kernels/emulation/block/number_formats.h"

namespace tokenmill::emulation {

namespace {

constexpr int kRows = 64, kDepth = 16, kMaxColumns = 256;
constexpr size_t kStateBytes = sizeof(Warpgroup) * kMaxWarpgroups;

Warpgroup& own_group() {
  WarpgroupStates& states = this_block().warpgroups;
  if (!states.groups) {
    void* memory =
        mmap(nullptr, kStateBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    states.groups = static_cast<Warpgroup*>(memory);
  }
  return states.groups[current_thread->linear / kWarpgroupSize];
}

unsigned thread_in_group() { return current_thread->linear % kWarpgroupSize; }

/// Meets the 128 threads at one instruction; `action` runs once, on the last.
template <typename Action>
void meet_warpgroup(Warpgroup& group, void* operands, const char* what, Site site, Action action) {
  const unsigned first_warp = current_thread->warp / 4 * 4;
  Block& block = this_block();
  if ((first_warp + 4) * kWarpSize > block.num_threads)
    fail(site, std::string(what) + ": the block has no four warps here");
  if (group.num_arrived == 0) {
    group.what = what;
    group.site = site;
  } else if (!same_site(group.site, site)) {
    fail(site, std::string("divergent ") + what + ": other threads of the warpgroup wait at " + to_string(group.site));
  }
  group.operands[thread_in_group()] = operands;
  if (++group.num_arrived < kWarpgroupSize) {
    wait_for(what, site);
    return;
  }
  group.num_arrived = 0;
  action();
  for (unsigned w = first_warp; w < first_warp + 4; ++w) make_ready(block, w, ~0u);
}

/// A matrix operand in shared memory, as its descriptor describes it.
struct SharedOperand {
  uint32_t start, leading_bytes, stride_bytes;
  int swizzle_bits;

  SharedOperand(uint64_t descriptor, Site site)
      : start(static_cast<uint32_t>(descriptor & 0x3fff) << 4),
        leading_bytes(static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4),
        stride_bytes(static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4),
        swizzle_bits(3) {
    if (descriptor >> 62 != 1) fail(site, "wgmma: only descriptors with the 128-byte swizzle are emulated");
    if (descriptor >> 49 & 7)
      fail(site, "wgmma: descriptors with a base offset are not emulated; align tiles to 1024 bytes");
  }

  /// Element (i, k), i being the row of A or the column of B; PTX, "Canonical Layouts" of the 128-byte swizzle.
  uint32_t address(int i, int k, bool transposed) const {
    const auto row = static_cast<uint32_t>(i), depth = static_cast<uint32_t>(k);
    const uint32_t linear =
        transposed ? start + row / 64 * leading_bytes + depth / 8 * stride_bytes + depth % 8 * 128 + row % 64 * 2
                   : start + row / 8 * stride_bytes + row % 8 * 128 + depth * 2;
    return linear ^ ((linear >> 7 & 7) << 4);
  }
};

float value_of(MmaType type, uint16_t bits) { return type == MmaType::kBf16 ? from_bf16(bits) : from_f16(bits); }

/// Hands each element (i, k) of an operand of `count` rows or columns to store(i, k, value): 16 bytes lie together at a
/// time.
template <typename Store>
void load_operand(const WgmmaProduct& product, uint64_t descriptor, int count, bool transposed, Store store) {
  const SharedOperand operand(descriptor, product.site);
  const SharedArena& shared = this_block().shared;
  for (int outer = 0; outer < (transposed ? kDepth : count); ++outer) {
    for (int inner = 0; inner < (transposed ? count : kDepth); inner += 8) {
      const uint32_t address = transposed ? operand.address(inner, outer, true) : operand.address(outer, inner, false);
      const unsigned char* unit = shared.base() + address;
      if (!shared.contains(unit, 16)) {
        fail(product.site,
             "wgmma: an operand reaches shared address " + std::to_string(address) + ", outside of the block's arrays");
      }
      sanitizer::note_read(unit, 16);
      uint16_t bits[8];
      __builtin_memcpy(bits, unit, 16);
      for (int e = 0; e < 8; ++e) {
        const float value = value_of(product.call.type, bits[e]);
        transposed ? store(inner + e, outer, value) : store(outer, inner + e, value);
      }
    }
  }
}

/// Rows 16 * warp of A from the registers of a warp: the fragment of mma.m16n8k16.
void load_registers(const WgmmaProduct& product, float (*a)[kDepth]) {
  for (int t = 0; t < static_cast<int>(kWarpgroupSize); ++t) {
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < 2; ++i) {
        const int row = t / 32 * 16 + t % 32 / 4 + r % 2 * 8, column = t % 4 * 2 + i + r / 2 * 8;
        a[row][column] = value_of(product.call.type, static_cast<uint16_t>(product.a[t][r] >> (16 * i)));
      }
    }
  }
}

/// Runs one product into its chain.
void multiply(Warpgroup& group, const WgmmaProduct& product) {
  const WgmmaCall& call = product.call;
  float a[kRows][kDepth], b[kDepth][kMaxColumns], sum[kMaxColumns];
  if (call.a) {
    load_registers(product, a);
  } else {
    load_operand(product, call.a_descriptor, kRows, call.a_transposed, [&](int m, int k, float x) { a[m][k] = x; });
  }
  load_operand(product, call.b_descriptor, call.n, call.b_transposed, [&](int n, int k, float x) { b[k][n] = x; });
  auto* values = group.chains[product.chain].values;
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < call.n; ++n) sum[n] = 0;
    for (int k = 0; k < kDepth; ++k) {
      for (int n = 0; n < call.n; ++n) sum[n] += a[m][k] * b[k][n];
    }
    // D: thread t of warp w holds rows 16 w + t / 4 (+ 8), columns 8 i + 2 (t % 4) (+ 1).
    for (int n = 0; n < call.n; ++n) {
      float& d = values[m / 16 * 32 + m % 8 * 4 + n % 8 / 2][n / 8 * 4 + m % 16 / 8 * 2 + n % 2];
      d = call.accumulate ? d + sum[n] : sum[n];
    }
  }
}

/// The chain of these accumulators: the one under way, or a new one that takes their values and leaves NaN.
int find_or_make_chain(Warpgroup& group, int n, Site site) {
  int free = -1;
  for (int c = 0; c < Warpgroup::kMaxChains; ++c) {
    if (!group.chain_used[c]) {
      free = c;
    } else if (group.chains[c].d[0] == group.operands[0]) {
      return c;
    }
  }
  if (free < 0) fail(site, "wgmma: more than 16 sets of accumulators under way");
  group.chain_used[free] = true;
  WgmmaChain& chain = group.chains[free];
  for (unsigned t = 0; t < kWarpgroupSize; ++t) {
    chain.d[t] = static_cast<float*>(group.operands[t]);
    for (int i = 0; i < n / 2; ++i) {
      chain.values[t][i] = chain.d[t][i];
      chain.d[t][i] = NAN;
    }
  }
  return free;
}

/// Shows the results of chains that have no product under way any more.
void finish_chains(Warpgroup& group, const bool (&changed)[Warpgroup::kMaxChains],
                   const int (&widths)[Warpgroup::kMaxChains]) {
  for (int c = 0; c < Warpgroup::kMaxChains; ++c) {
    bool under_way = false;
    for (int p = 0; p < group.num_products; ++p) under_way |= group.products[p].chain == c;
    if (!changed[c] || under_way) continue;
    group.chain_used[c] = false;
    const WgmmaChain& chain = group.chains[c];
    for (unsigned t = 0; t < kWarpgroupSize; ++t) {
      for (int i = 0; i < widths[c] / 2; ++i) chain.d[t][i] = chain.values[t][i];
    }
  }
}

/// Runs the products of the groups before `first_pending`.
void run_products(Warpgroup& group, unsigned first_pending) {
  bool changed[Warpgroup::kMaxChains] = {};
  int widths[Warpgroup::kMaxChains] = {};
  int done = 0;
  for (; done < group.num_products && group.products[done].group < first_pending; ++done) {
    const WgmmaProduct& product = group.products[done];
    multiply(group, product);
    changed[product.chain] = true;
    widths[product.chain] = product.call.n;
  }
  group.num_products -= done;
  for (int p = 0; p < group.num_products; ++p) group.products[p] = group.products[p + done];
  finish_chains(group, changed, widths);
}

}  // namespace

WarpgroupStates::~WarpgroupStates() {
  if (groups) munmap(groups, kStateBytes);
}

void start_warpgroups(Block& block) {
  if (!block.warpgroups.groups) return;
  for (unsigned g = 0; g < kMaxWarpgroups; ++g) {
    Warpgroup& group = block.warpgroups.groups[g];
    group.num_arrived = 0;
    group.num_products = 0;
    for (bool& used : group.chain_used) used = false;
    for (bool& fenced : group.fenced) fenced = false;
  }
}

void fence_wgmma() { own_group().fenced[thread_in_group()] = true; }

void start_wgmma(float* d, const WgmmaCall& call, Site site) {
  Warpgroup& group = own_group();
  if (!group.fenced[thread_in_group()]) {
    fail(site, "wgmma without a wgmma.fence since the warpgroup's start or last wait");
  }
  if (group.num_products == Warpgroup::kMaxProducts) fail(site, "wgmma: more than 64 products under way");
  WgmmaProduct& product = group.products[group.num_products];
  if (call.a) {
    for (int r = 0; r < 4; ++r) product.a[thread_in_group()][r] = call.a[r];
  }
  const unsigned committed = this_fiber().num_wgmma_groups;
  meet_warpgroup(group, d, "wgmma", site, [&] {
    product.call = call;
    product.group = committed;
    product.site = site;
    product.chain = find_or_make_chain(group, call.n, site);
    ++group.num_products;
  });
}

void commit_wgmma() { ++this_fiber().num_wgmma_groups; }

void wait_wgmma(int num_pending, Site site) {
  Warpgroup& group = own_group();
  group.fenced[thread_in_group()] = false;
  const unsigned committed = this_fiber().num_wgmma_groups, pending = static_cast<unsigned>(num_pending);
  meet_warpgroup(group, nullptr, "wgmma.wait_group", site,
                 [&] { run_products(group, committed > pending ? committed - pending : 0); });
}

std::string check_wgmma_at_end(const Block& block) {
  if (!block.warpgroups.groups) return "";
  for (unsigned g = 0; g < (block.num_threads + kWarpgroupSize - 1) / kWarpgroupSize; ++g) {
    const Warpgroup& group = block.warpgroups.groups[g];
    if (group.num_products > 0) {
      return to_string(group.products[0].site) + ": the block ends with " + std::to_string(group.num_products) +
             " wgmma under way, this one first; wait for them";
    }
  }
  return "";
}

}  // namespace tokenmill::emulation
