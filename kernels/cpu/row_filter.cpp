#include "kernels/cpu/row_filter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace tokenmill::cpu {
namespace {

// Buckets of scaled logits in descending order: sign-free exponent and three mantissa bits of -scaled.
constexpr int kBuckets = 2048;

int bucket_of(float scaled) { return static_cast<int>(std::bit_cast<uint32_t>(-scaled + 0.0f) >> 20); }

/// The ids of one bucket, most likely first, then ascending.
int32_t* sorted_bucket(const float* scaled, int32_t* begin, int32_t* end, int bucket) {
  int32_t* const last = std::partition(begin, end, [&](int32_t id) { return bucket_of(scaled[id]) == bucket; });
  std::sort(begin, last, [&](int32_t a, int32_t b) { return scaled[a] != scaled[b] ? scaled[a] > scaled[b] : a < b; });
  return last;
}

/// The k-th largest scaled logit.
float kth_largest(const float* scaled, int32_t* ids, int64_t count, int64_t k) {
  std::array<int32_t, kBuckets> sizes{};
  for (int64_t i = 0; i < count; ++i) ++sizes[static_cast<size_t>(bucket_of(scaled[ids[i]]))];
  int bucket = 0;
  int64_t before = 0;
  while (before + sizes[static_cast<size_t>(bucket)] < k) before += sizes[static_cast<size_t>(bucket++)];
  sorted_bucket(scaled, ids, ids + count, bucket);
  return scaled[ids[k - before - 1]];
}

/// The last id that the smallest most-likely-first prefix of mass `fraction` of all holds.
/// total: of all, or 0 when it is the sum of these.
int32_t last_of_prefix(const float* scaled, const float* weight, int32_t* ids, int64_t count, double fraction,
                       double total) {
  std::array<double, kBuckets> masses{};
  std::array<int32_t, kBuckets> sizes{};
  double sum_of_these = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto bucket = static_cast<size_t>(bucket_of(scaled[ids[i]]));
    masses[bucket] += weight[ids[i]];
    ++sizes[bucket];
    sum_of_these += weight[ids[i]];
  }
  const double target = fraction * (total > 0 ? total : sum_of_these);
  double sum = 0;
  int bucket = 0, last_used = 0;
  for (; bucket < kBuckets; ++bucket) {
    const auto b = static_cast<size_t>(bucket);
    if (sizes[b] == 0) continue;
    last_used = bucket;
    if (sum + masses[b] >= target) break;
    sum += masses[b];
  }
  if (bucket == kBuckets) {  // rounding kept the sum below: all of the last bucket stays
    bucket = last_used;
    sum = -1;
  }
  int32_t* const end = sorted_bucket(scaled, ids, ids + count, bucket);
  int32_t* id = ids;
  while (id + 1 < end && (sum < 0 || sum + weight[*id] < target)) {
    if (sum >= 0) sum += weight[*id];
    ++id;
  }
  return *id;
}

}  // namespace

float lower_bound(const RowFilter& filter, int64_t n, double total) {
  if (filter.min_p > 0) return std::log(filter.min_p);
  if (!filter.is_top_p_alone()) return -std::numeric_limits<float>::infinity();
  // Ids below it have less than half of the mass that top-p cuts off, so the prefix ends before them.
  const double cut = (1 - std::max(0.0, double{filter.top_p})) * total;
  return static_cast<float>(std::log(cut / (2 * static_cast<double>(n))));
}

void apply_filter(const RowFilter& filter, const float* scaled, float* weight, int64_t n, double total,
                  int32_t* candidates) {
  const float low = filter.min_p > 0 ? std::log(filter.min_p) : -std::numeric_limits<float>::infinity();
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (scaled[i] >= low) {
      candidates[count++] = static_cast<int32_t>(i);
    } else {
      weight[i] = 0;
    }
  }
  if (filter.top_k > 0 && filter.top_k < count) {
    const float border = kth_largest(scaled, candidates, count, filter.top_k);
    int64_t kept = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (scaled[i] >= low && scaled[i] >= border) {
        candidates[kept++] = static_cast<int32_t>(i);
      } else {
        weight[i] = 0;
      }
    }
    count = kept;
  }
  if (filter.top_p < 1 && count > 1) {
    const double fraction = std::max(0.0, double{filter.top_p});
    const int32_t last =
        last_of_prefix(scaled, weight, candidates, count, fraction, filter.is_top_p_alone() ? total : 0);
    const float border = scaled[last];
    for (int64_t i = 0; i < n; ++i) {
      if (scaled[i] < border || (scaled[i] == border && i > last)) weight[i] = 0;
    }
  }
}

}  // namespace tokenmill::cpu
