#include "kernels/emulation/block/warp.h"

#include <bit>
#include <string>

#include "kernels/emulation/block/block.h"

namespace tokenmill::emulation {

namespace {

template <typename Operands>
Operands& of_lane(const WarpOperands& all, int lane) {
  return *static_cast<Operands*>(all.lanes[lane]);
}

template <typename Function>
void for_each_lane(uint32_t mask, Function function) {
  for (; mask != 0; mask &= mask - 1) function(std::countr_zero(mask));
}

struct ShuffleOperands {
  Shuffle kind;
  uint64_t value;
  int argument, width;
  uint64_t result;
};

/// The lane that `lane` reads from.
int source_lane(const ShuffleOperands& o, int lane) {
  const int first = lane & ~(o.width - 1), end = first + o.width;
  int source = lane;
  switch (o.kind) {
    case Shuffle::kIndex:
      source = first | (o.argument & (o.width - 1));
      break;
    case Shuffle::kXor:  // lower segments can be read, higher ones not
      source = lane ^ (o.argument & 31);
      return source < end ? source : lane;
    case Shuffle::kUp:
      source = lane - o.argument;
      break;
    case Shuffle::kDown:
      source = lane + o.argument;
      break;
  }
  return source >= first && source < end ? source : lane;
}

void do_shuffle(const WarpOperands& all, Site) {
  for_each_lane(all.mask, [&](int lane) {
    auto& o = of_lane<ShuffleOperands>(all, lane);
    const int source = source_lane(o, lane);
    o.result = all.mask >> source & 1 ? of_lane<ShuffleOperands>(all, source).value : 0xDEADBEEFDEADBEEFull;
  });
}

struct BallotOperands {
  bool predicate;
  uint32_t result;
};

void do_ballot(const WarpOperands& all, Site) {
  uint32_t votes = 0;
  for_each_lane(all.mask, [&](int lane) {
    votes |= static_cast<uint32_t>(of_lane<BallotOperands>(all, lane).predicate) << lane;
  });
  for_each_lane(all.mask, [&](int lane) { of_lane<BallotOperands>(all, lane).result = votes; });
}

struct MatchOperands {
  uint64_t value;
  uint32_t result;
};

void do_match(const WarpOperands& all, Site) {
  for_each_lane(all.mask, [&](int lane) {
    auto& own = of_lane<MatchOperands>(all, lane);
    own.result = 0;
    for_each_lane(all.mask, [&](int other) {
      if (of_lane<MatchOperands>(all, other).value == own.value) own.result |= 1u << other;
    });
  });
}

struct ReduceOperands {
  Reduce operation;
  bool is_signed;
  uint32_t value, result;
};

uint32_t combine(const ReduceOperands& o, uint32_t a, uint32_t b) {
  const bool less = o.is_signed ? static_cast<int32_t>(a) < static_cast<int32_t>(b) : a < b;
  switch (o.operation) {
    case Reduce::kAdd:
      return a + b;
    case Reduce::kMin:
      return less ? a : b;
    case Reduce::kMax:
      return less ? b : a;
    case Reduce::kAnd:
      return a & b;
    case Reduce::kOr:
      return a | b;
    case Reduce::kXor:
      return a ^ b;
  }
  __builtin_unreachable();
}

void do_reduce(const WarpOperands& all, Site) {
  const int first = std::countr_zero(all.mask);
  const auto& operation = of_lane<ReduceOperands>(all, first);
  uint32_t sum = operation.value;
  for_each_lane(all.mask & ~(1u << first),
                [&](int lane) { sum = combine(operation, sum, of_lane<ReduceOperands>(all, lane).value); });
  for_each_lane(all.mask, [&](int lane) { of_lane<ReduceOperands>(all, lane).result = sum; });
}

}  // namespace

uint64_t shuffle(Shuffle kind, uint32_t mask, uint64_t value, int argument, int width, Site site) {
  if (width < 1 || width > 32 || !std::has_single_bit(static_cast<unsigned>(width))) {
    fail(site, "shuffle: width " + std::to_string(width) + " is not a power of two of 1 to 32");
  }
  ShuffleOperands operands{kind, value, argument, width, 0};
  meet_warp(mask, do_shuffle, &operands, /*ordered=*/false, "warp shuffle", site);
  return operands.result;
}

uint32_t ballot(uint32_t mask, bool predicate, Site site) {
  BallotOperands operands{predicate, 0};
  meet_warp(mask, do_ballot, &operands, /*ordered=*/false, "warp vote", site);
  return operands.result;
}

uint32_t match_any(uint32_t mask, uint64_t value, Site site) {
  MatchOperands operands{value, 0};
  meet_warp(mask, do_match, &operands, /*ordered=*/false, "warp match", site);
  return operands.result;
}

uint32_t reduce(Reduce operation, bool is_signed, uint32_t mask, uint32_t value, Site site) {
  ReduceOperands operands{operation, is_signed, value, 0};
  meet_warp(mask, do_reduce, &operands, /*ordered=*/false, "warp reduction", site);
  return operands.result;
}

void sync_warp(uint32_t mask, Site site) { meet_warp(mask, nullptr, nullptr, /*ordered=*/true, "__syncwarp", site); }

}  // namespace tokenmill::emulation
