#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tokenmill {

/// Counts of non-negative values in buckets whose width is 1/32 of the power of two they lie in, for values between 2^-20
/// and 2^24: a microsecond to half a year, or whole numbers to 16 million. So a quantile is known to 1/64 (1.6 %) of
/// itself (rounded down, it is a whole number below 64 exactly); count, sum, smallest and largest are exact. A fixed
/// 11 KiB; histograms are added up in any order with the same result (sums: up to rounding). Not thread-safe.
class Histogram {
 public:
  /// Negative values and NaN count as 0. `times`: as often as the value occurred.
  void add(double value, int64_t times = 1);
  void merge(const Histogram& other);

  int64_t count() const { return count_; }
  double sum() const { return sum_; }
  double min() const { return count_ > 0 ? min_ : 0; }
  double max() const { return max_; }
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  /// Standard deviation of the values (not an estimate of a larger population's); 0 without any. Exact as the sum is.
  double standard_deviation() const;
  /// The smallest value that at least `share` of the values do not exceed, within the stated error; 0 without values.
  /// share: above 0, at most 1.
  double quantile(double share) const;
  /// How many values do not exceed `bound`; those within 1/64 of it may be counted on its other side. Never falls as
  /// the bound rises.
  int64_t count_up_to(double bound) const;

  /// Bytes of the buckets in use, for another rank; deserialize takes one histogram off the front of `bytes` and throws
  /// Error(kInternal) when they are none.
  void serialize(std::string& bytes) const;
  static Histogram deserialize(std::string_view& bytes);

 private:
  static constexpr int kMinExponent = -20, kMaxExponent = 24, kPerOctave = 32;
  static constexpr size_t kNumBuckets = (kMaxExponent - kMinExponent) * kPerOctave + 2;  // below and above the range
  static size_t bucket_of(double value);
  static double middle_of(size_t bucket);

  std::array<int64_t, kNumBuckets> buckets_{};
  int64_t count_ = 0;
  double sum_ = 0, sum_squares_ = 0, min_ = 0, max_ = 0;
};

}  // namespace tokenmill
