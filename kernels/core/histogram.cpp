#include "kernels/core/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/core/check.h"

namespace tokenmill {
namespace {

constexpr int kMantissaBits = 52, kExponentBias = 1023, kSubBucketBits = 5;

template <typename T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T take(std::string_view& bytes) {
  TM_ASSERT(bytes.size() >= sizeof(T), "a histogram is cut off");
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

}  // namespace

/// A double's exponent and first mantissa bits, read as a number, count the buckets.
size_t Histogram::bucket_of(double value) {
  constexpr int64_t kFirst = int64_t{kExponentBias + kMinExponent} << kSubBucketBits;
  const auto bits = static_cast<int64_t>(std::bit_cast<uint64_t>(value) >> (kMantissaBits - kSubBucketBits));
  return static_cast<size_t>(std::clamp<int64_t>(bits - kFirst + 1, 0, kNumBuckets - 1));
}

double Histogram::middle_of(size_t bucket) {
  if (bucket == 0) return 0;
  const auto position = static_cast<int>(bucket) - 1;
  const double octave = std::ldexp(1.0, kMinExponent + position / kPerOctave);
  const double low = octave * (1 + static_cast<double>(position % kPerOctave) / kPerOctave);
  return low + octave / (2 * kPerOctave);
}

void Histogram::add(double value, int64_t times) {
  if (!(value > 0)) value = 0;
  if (times <= 0) return;
  buckets_[bucket_of(value)] += times;
  min_ = count_ == 0 ? value : std::min(min_, value);
  max_ = std::max(max_, value);
  count_ += times;
  sum_ += value * static_cast<double>(times);
  sum_squares_ += value * value * static_cast<double>(times);
}

void Histogram::merge(const Histogram& other) {
  if (other.count_ == 0) return;
  for (size_t i = 0; i < kNumBuckets; ++i) buckets_[i] += other.buckets_[i];
  min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  count_ += other.count_;
  sum_ += other.sum_;
  sum_squares_ += other.sum_squares_;
}

double Histogram::standard_deviation() const {
  if (count_ == 0) return 0;
  const double average = mean();
  return std::sqrt(std::max(0.0, sum_squares_ / static_cast<double>(count_) - average * average));
}

double Histogram::quantile(double share) const {
  if (count_ == 0) return 0;
  const auto rank =
      std::clamp<int64_t>(static_cast<int64_t>(std::ceil(share * static_cast<double>(count_))), 1, count_);
  int64_t seen = 0;
  for (size_t i = 0; i < kNumBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank) return i + 1 == kNumBuckets ? max_ : std::clamp(middle_of(i), min_, max_);
  }
  return max_;
}

int64_t Histogram::count_up_to(double bound) const {
  if (bound >= max_) return count_;
  int64_t seen = 0;
  for (size_t i = 0; i < kNumBuckets && middle_of(i) <= bound; ++i) seen += buckets_[i];
  return seen;
}

void Histogram::serialize(std::string& bytes) const {
  put(bytes, count_);
  for (const double value : {sum_, sum_squares_, min_, max_}) put(bytes, value);
  put(bytes, static_cast<uint32_t>(std::count_if(buckets_.begin(), buckets_.end(), [](int64_t n) { return n != 0; })));
  for (size_t i = 0; i < kNumBuckets; ++i) {
    if (buckets_[i] == 0) continue;
    put(bytes, static_cast<uint16_t>(i));
    put(bytes, buckets_[i]);
  }
}

Histogram Histogram::deserialize(std::string_view& bytes) {
  Histogram out;
  out.count_ = take<int64_t>(bytes);
  for (double* value : {&out.sum_, &out.sum_squares_, &out.min_, &out.max_}) *value = take<double>(bytes);
  for (auto left = take<uint32_t>(bytes); left > 0; --left) {
    const auto bucket = take<uint16_t>(bytes);
    TM_ASSERT(bucket < kNumBuckets, "bucket {} of a histogram of {}", bucket, kNumBuckets);
    out.buckets_[bucket] = take<int64_t>(bytes);
  }
  return out;
}

}  // namespace tokenmill
