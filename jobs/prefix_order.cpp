#include "jobs/prefix_order.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/core/check.h"

namespace tokenmill::jobs {
namespace {

constexpr size_t kFirstStep = 128;
constexpr size_t kStep = 256;
constexpr size_t kEvenSteps = size_t{4} << 10;  // beyond it steps grow with the length
constexpr size_t kLongest = size_t{256} << 10;  // what lies behind counts for the whole only

constexpr size_t next_boundary(size_t boundary) {
  if (boundary < kStep) return boundary + kFirstStep;
  return boundary + (boundary < kEvenSteps ? kStep : boundary / 16 / kStep * kStep);
}

constexpr int64_t max_fingerprints() {
  int64_t count = 1;
  for (size_t boundary = kFirstStep; boundary <= kLongest; boundary = next_boundary(boundary)) ++count;
  return count;
}
static_assert(max_fingerprints() <= std::numeric_limits<uint8_t>::max(), "PrefixOrder::shared counts them in a byte");

/// The work of PrefixFingerprints::order(): spans of rows that share their first fingerprints, split further and
/// further. A stack instead of a recursion; every row is moved once per fingerprint that it shares.
class Ordering {
 public:
  Ordering(const std::vector<uint32_t>& fingerprints, const std::vector<uint32_t>& starts)
      : fingerprints_(fingerprints), starts_(starts) {
    order_.rows.resize(starts.size());
    std::iota(order_.rows.begin(), order_.rows.end(), 0u);
    order_.shared.assign(starts.size(), 0);
  }

  PrefixOrder run() && {
    if (starts_.size() > 1) open_.push_back({0, static_cast<uint32_t>(starts_.size()), 0});
    while (!open_.empty()) {
      const Span span = open_.back();
      open_.pop_back();
      split(span);
    }
    return std::move(order_);
  }

 private:
  struct Span {
    uint32_t begin, end;  // places
    uint32_t level;       // fingerprints that all its rows share
  };

  uint32_t length(uint32_t row) const {
    const size_t end = row + size_t{1} < starts_.size() ? starts_[row + size_t{1}] : fingerprints_.size();
    return static_cast<uint32_t>(end - starts_[row]);
  }
  /// Fingerprint and row. The last fingerprint is that of the whole: equal up to the end is equal throughout.
  uint64_t key(uint32_t row, uint32_t level) const {
    const uint32_t fingerprint = level < length(row) ? fingerprints_[starts_[row] + level] : 0;
    return uint64_t{fingerprint} << 32 | row;
  }

  void split(const Span& span) {
    keys_.clear();
    for (uint32_t place = span.begin; place < span.end; ++place) keys_.push_back(key(order_.rows[place], span.level));
    const uint32_t first = static_cast<uint32_t>(keys_[0] >> 32);
    const bool alike = std::all_of(keys_.begin(), keys_.end(), [&](uint64_t k) { return k >> 32 == first; });
    if (alike) {
      descend({span.begin, span.end, span.level + 1});
      return;
    }
    std::sort(keys_.begin(), keys_.end());
    put_first_rows();
    std::sort(keys_.begin(), keys_.end());
    uint32_t begin = span.begin;
    for (uint32_t place = span.begin; place < span.end; ++place) {
      const size_t i = place - span.begin;
      if (i > 0 && keys_[i] >> 32 != keys_[i - 1] >> 32) {
        if (place - begin > 1) descend({begin, place, span.level + 1});
        begin = place;
        order_.shared[place] = static_cast<uint8_t>(span.level);
      }
      order_.rows[place] = static_cast<uint32_t>(keys_[i]);
    }
    if (span.end - begin > 1) descend({begin, span.end, span.level + 1});
  }

  /// Puts the smallest row of each fingerprint in its place: keys then sort by it.
  void put_first_rows() {
    uint64_t fingerprint = 0, first_row = 0;
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (i == 0 || keys_[i] >> 32 != fingerprint) {
        fingerprint = keys_[i] >> 32;
        first_row = keys_[i] << 32;
      }
      keys_[i] = first_row | (keys_[i] & 0xffffffffu);
    }
  }

  /// The span is done when its rows have no more fingerprints.
  void descend(const Span& span) {
    bool more = false;
    for (uint32_t place = span.begin; place < span.end; ++place) more = more || span.level < length(order_.rows[place]);
    if (more) {
      open_.push_back(span);
      return;
    }
    std::sort(order_.rows.begin() + span.begin, order_.rows.begin() + span.end);
    for (uint32_t place = span.begin + 1; place < span.end; ++place)
      order_.shared[place] = static_cast<uint8_t>(span.level);
  }

  const std::vector<uint32_t>& fingerprints_;
  const std::vector<uint32_t>& starts_;
  PrefixOrder order_;
  std::vector<Span> open_;
  std::vector<uint64_t> keys_;  // of the span being split
};

}  // namespace

void PrefixFingerprints::add(std::string_view prefix) {
  TM_ASSERT(fingerprints_.size() < std::numeric_limits<uint32_t>::max() / 2);
  starts_.push_back(static_cast<uint32_t>(fingerprints_.size()));
  uint64_t chain = 0;
  size_t begin = 0;
  for (size_t end = kFirstStep; end <= prefix.size() && end <= kLongest; end = next_boundary(end)) {
    chain = XXH3_64bits_withSeed(prefix.data() + begin, end - begin, chain);
    fingerprints_.push_back(static_cast<uint32_t>(chain));
    begin = end;
  }
  const uint64_t seed = prefix.empty() ? starts_.size() : ~chain;
  fingerprints_.push_back(
      static_cast<uint32_t>(XXH3_64bits_withSeed(prefix.data() + begin, prefix.size() - begin, seed)));
}

void PrefixFingerprints::clear() {
  fingerprints_.clear();
  starts_.clear();
}

void PrefixFingerprints::reserve(int64_t num_rows, int64_t num_fingerprints) {
  starts_.reserve(static_cast<size_t>(num_rows));
  fingerprints_.reserve(static_cast<size_t>(num_fingerprints + max_fingerprints()));
}

PrefixOrder PrefixFingerprints::order() const { return Ordering(fingerprints_, starts_).run(); }

}  // namespace tokenmill::jobs
