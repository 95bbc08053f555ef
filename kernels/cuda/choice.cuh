#pragma once
// How one block chooses the token of a row; semantics in kernels/ops.h (Ops::pick).
//
// Weights exp((x - max) / temperature) are added up as integers, multiples of 2^-44. So a sum does not depend on its
// order or on how it is cut: pick() over all logits and pick_listed() over the lists of ranks draw the same id, whatever
// the block's threads do. A weight below 2^-45 of the largest cannot be drawn; a vocabulary may have 2^18 ids.
#include <cstdint>

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vocabulary.cuh"
#include "kernels/random.h"

namespace tokenmill::cuda {

constexpr int kPickThreads = 256;
constexpr int kPickWarps = kPickThreads / 32;
using Mass = unsigned long long;

__device__ __forceinline__ Mass to_mass(float weight) { return static_cast<Mass>(weight * 0x1p44f); }
__device__ __forceinline__ Mass to_mass(double weight) { return static_cast<Mass>(weight * 0x1p44); }

/// Orders scaled logits (<= 0) from the most likely to the least: smaller keys first.
__device__ __forceinline__ uint32_t order_key(float scaled) { return __float_as_uint(0.0f - scaled); }
constexpr uint32_t kNoKey = 0xffffffffu;  ///< of what is not there

/// One candidate: nothing when key is kNoKey.
struct Candidate {
  uint32_t key;
  Mass mass;
};

/// Which candidates a filter keeps: those before the border, and the first num_equal of those at it, in ascending order
/// of index.
struct Border {
  uint32_t key = kNoKey - 1;
  int64_t num_equal = INT64_MAX;
};

/// The normalizer of a row's raw logits.
struct RawSoftmax {
  float max;
  double log_sum;
  bool finite;
  __device__ float logprob(float logit) const { return static_cast<float>(double{logit} - max - log_sum); }
};

/// Every thread gets the result. Tiles are added up in an order that depends on their number alone.
__device__ inline RawSoftmax raw_softmax(const PartialsView& tiles, int64_t row) {
  float max = -INFINITY;
  int bad = 0;
  for (int t = static_cast<int>(threadIdx.x); t < tiles.num_tiles; t += kPickThreads) {
    max = fmaxf(max, tiles.max[row * tiles.max_stride + t]);
    bad |= tiles.non_finite[row * tiles.non_finite_stride + t];
  }
  max = block_reduce<kPickThreads>(max, Max{});
  double sum = 0;
  for (int t = static_cast<int>(threadIdx.x); t < tiles.num_tiles; t += kPickThreads) {
    const float tile_sum = tiles.sum_exp[row * tiles.sum_exp_stride + t];
    if (tile_sum > 0) sum += tile_sum * exp(double{tiles.max[row * tiles.max_stride + t]} - max);
  }
  sum = block_reduce<kPickThreads>(sum, Sum{});
  return {max, log(sum), __syncthreads_or(bad) == 0};
}

/// Finds, among candidates of keys up to limit, the smallest key at which the running amount reaches target; amount(c)
/// of each. before: the amount of smaller keys. key kNoKey - 1: all of them together stay below target.
struct Selected {
  uint32_t key;
  Mass before;
};
template <typename Source, typename Amount>
__device__ Selected select(const Source& source, uint32_t limit, Mass target, Amount amount) {
  using Histogram = Mass[256];
  GPU_SHARED(Histogram, histogram);
  GPU_SHARED(Selected, found);
  uint32_t prefix = 0;
  Mass before = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    __syncthreads();
    histogram[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < source.size(); i += kPickThreads) {
      const Candidate c = source.get(i);
      if (c.key > limit || (shift < 24 && (c.key >> (shift + 8)) != (prefix >> (shift + 8)))) continue;
      atomicAdd(&histogram[c.key >> shift & 255u], amount(c));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      Mass sum = before;
      found = {kNoKey, 0};
      for (uint32_t bucket = 0; bucket < 256; ++bucket) {
        if (histogram[bucket] > 0 && sum + histogram[bucket] >= target) {
          found = {prefix | bucket << shift, sum};
          break;
        }
        sum += histogram[bucket];
      }
    }
    __syncthreads();
    if (found.key == kNoKey) return {kNoKey - 1, 0};
    prefix = found.key;
    before = found.before;
  }
  return {prefix, before};
}
static_assert(kPickThreads == 256, "one thread per bucket of the histogram");

struct CountOne {
  __device__ Mass operator()(const Candidate&) const { return 1; }
};
struct CountMass {
  __device__ Mass operator()(const Candidate& c) const { return c.mass; }
};

/// Filters of one row, applied in this order: min-p, top-k, top-p.
struct RowFilter {
  float min_p;    // 0: off
  int32_t top_k;  // 0 or less: off
  float top_p;    // 1 or more: off
  __device__ bool active() const { return min_p > 0 || top_k > 0 || top_p < 1; }
  /// What min-p alone keeps.
  __device__ uint32_t min_p_limit() const { return min_p > 0 ? order_key(fminf(logf(min_p), 0.0f)) : kNoKey - 1; }
};

/// What min-p and top-k keep: keys up to the result.
template <typename Source>
__device__ uint32_t top_k_limit(const Source& source, const RowFilter& filter) {
  const uint32_t limit = filter.min_p_limit();
  if (filter.top_k <= 0) return limit;
  const uint32_t border = select(source, limit, static_cast<Mass>(filter.top_k), CountOne{}).key;
  return border < limit ? border : limit;
}

/// total: the mass of all ids, those that source leaves out included; counts with top-p alone.
template <typename Source>
__device__ Border filter_border(const Source& source, const RowFilter& filter, double total) {
  const uint32_t limit = top_k_limit(source, filter);
  if (filter.top_p >= 1) return {limit, INT64_MAX};
  Mass kept = 0;
  for (int64_t i = threadIdx.x; i < source.size(); i += kPickThreads) {
    const Candidate c = source.get(i);
    if (c.key <= limit) kept += c.mass;
  }
  kept = block_reduce<kPickThreads>(kept, Sum{});
  const bool alone = filter.top_k <= 0 && filter.min_p <= 0;
  const double fraction = filter.top_p > 0 ? filter.top_p : 0.0;
  Mass target = alone ? to_mass(fraction * total) : static_cast<Mass>(fraction * static_cast<double>(kept));
  if (target == 0) target = 1;
  const Selected border = select(source, limit, target, CountMass{});
  if (border.key == kNoKey - 1) return {limit, INT64_MAX};
  // Equals have equal masses: how many of them the prefix takes.
  const Mass each = to_mass(expf(0.0f - __uint_as_float(border.key)));
  const Mass missing = target - border.before;
  return {border.key, each == 0 ? INT64_MAX : static_cast<int64_t>((missing + each - 1) / each)};
}

/// The mass of one chunk of 1,024 candidates that lies before the border, and how many lie at it.
struct ChunkSum {
  Mass mass;
  int num_equal;
};

/// Of chunk, by one warp; every lane gets it.
template <typename Source>
__device__ ChunkSum sum_chunk(const Source& source, uint32_t border, int64_t chunk) {
  Mass mass = 0;
  int num_equal = 0;
  const int64_t end = (chunk + 1) * kVocabTile < source.size() ? (chunk + 1) * kVocabTile : source.size();
  for (int64_t i = chunk * kVocabTile + threadIdx.x % 32; i < end; i += 32) {
    const Candidate c = source.get(i);
    if (c.key < border) mass += c.mass;
    num_equal += c.key == border ? 1 : 0;
  }
  return {warp_reduce(mass, Sum{}), warp_reduce(num_equal, Sum{})};
}

/// The first index of a chunk at which the running mass of kept candidates passes target; the last kept one of any mass
/// where rounding keeps the sum below; -1 when there is none. By one warp; num_equal: how many at the border are kept.
template <typename Source>
__device__ int64_t find_in_chunk(const Source& source, uint32_t border, int64_t num_equal, int64_t chunk, Mass target) {
  const unsigned lane = threadIdx.x % 32;
  const int64_t end = (chunk + 1) * kVocabTile < source.size() ? (chunk + 1) * kVocabTile : source.size();
  Mass before = 0;
  int64_t equal_before = 0, last = -1;
  for (int64_t base = chunk * kVocabTile; base < end; base += 32) {
    const int64_t i = base + lane;
    const Candidate c = i < end ? source.get(i) : Candidate{kNoKey, 0};
    const unsigned equals = __ballot_sync(kAllLanes, c.key == border);
    const int64_t rank = equal_before + __popc(equals & ((1u << lane) - 1));
    const bool kept = c.key < border || (c.key == border && rank < num_equal);
    const Mass own = kept ? c.mass : 0;
    Mass running = own;
    GPU_UNROLL for (unsigned distance = 1; distance < 32; distance *= 2) {
      const Mass other = __shfl_up_sync(kAllLanes, running, distance);
      if (lane >= distance) running += other;
    }
    const unsigned weighty = __ballot_sync(kAllLanes, own > 0);
    const unsigned passed = __ballot_sync(kAllLanes, own > 0 && before + running > target);
    if (passed != 0) return base + __ffs(static_cast<int>(passed)) - 1;
    if (weighty != 0) last = base + 31 - __clz(static_cast<int>(weighty));
    before += __shfl_sync(kAllLanes, running, 31);
    equal_before += __popc(equals);
  }
  return last;
}

/// Draws one of the kept candidates with the uniform u: inverse CDF in ascending order of index. chunks: room in shared
/// memory for one entry per 1,024 candidates. Every thread gets the index.
template <typename Source>
__device__ int64_t draw(const Source& source, const Border& border, double u, ChunkSum* chunks) {
  GPU_SHARED(int64_t, drawn);
  const int64_t num_chunks = (source.size() + kVocabTile - 1) / kVocabTile;
  __syncthreads();
  for (int64_t chunk = threadIdx.x / 32; chunk < num_chunks; chunk += kPickWarps) {
    const ChunkSum sum = sum_chunk(source, border.key, chunk);
    if (threadIdx.x % 32 == 0) chunks[chunk] = sum;
  }
  __syncthreads();
  if (threadIdx.x < 32) {  // every lane of the first warp walks the chunks
    const Mass each = to_mass(expf(0.0f - __uint_as_float(border.key)));
    const auto kept_equal = [&](int64_t chunk, int64_t equal_before) {
      const int64_t left = border.num_equal > equal_before ? border.num_equal - equal_before : 0;
      return left < chunks[chunk].num_equal ? left : int64_t{chunks[chunk].num_equal};
    };
    const auto walk = [&](Mass target, int64_t& chosen, int64_t& equal_left) {
      Mass sum = 0, rest = 0;
      int64_t equal_before = 0;
      for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
        const int64_t equal = kept_equal(chunk, equal_before);
        const Mass mass = chunks[chunk].mass + static_cast<Mass>(equal) * each;
        if (mass > 0) {
          chosen = chunk;
          equal_left = equal;
          rest = target - sum;
          if (sum + mass > target) return rest;
        }
        sum += mass;
        equal_before += chunks[chunk].num_equal;
      }
      return target == ~Mass{0} ? sum : rest;
    };
    int64_t chunk = 0, equal = 0;
    const Mass total = walk(~Mass{0}, chunk, equal);
    const Mass target = static_cast<Mass>(u * static_cast<double>(total));
    const Mass rest = walk(target, chunk, equal);
    const int64_t index = find_in_chunk(source, border.key, equal, chunk, rest);
    if (threadIdx.x == 0) drawn = index;
  }
  __syncthreads();
  return drawn;
}

}  // namespace tokenmill::cuda
