#include "engine/models/random_weights.h"

#include <xxhash.h>

#include <algorithm>
#include <set>
#include <vector>

#include "kernels/core/check.h"
#include "kernels/core/dtype.h"

namespace tokenmill {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr float kLargest = 0.034641F;  // sqrt(3) * 0.02, the half width of a uniform distribution with that deviation

/// The n-th number of a sequence (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
uint64_t number_at(uint64_t seed, uint64_t n) {
  uint64_t z = seed + (n + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

constexpr int kElements = 4;  // to a number, 16 bits each

bf16 element_of(uint64_t number, int64_t element) {
  const auto whole = static_cast<float>(static_cast<int16_t>(number >> (16 * (element % kElements)) & 0xffff));
  return to_bf16(whole * (kLargest / 32768));
}

/// Elements [first, first + out.size()) of a tensor.
void fill(const WeightSource& source, int64_t first, std::span<bf16> out) {
  if (source.name.ends_with("norm.weight")) {
    std::fill(out.begin(), out.end(), to_bf16(1));
    return;
  }
  const uint64_t seed = XXH3_64bits(source.name.data(), source.name.size());  // a sequence of its own
  const int64_t end = first + static_cast<int64_t>(out.size());
  for (int64_t i = first; i < end;) {
    const uint64_t number = number_at(seed, static_cast<uint64_t>(i / kElements));
    for (const int64_t next = std::min(end, (i / kElements + 1) * kElements); i < next; ++i)
      out[static_cast<size_t>(i - first)] = element_of(number, i);
  }
}

}  // namespace

void make_random_weights(const WeightPlan& plan, const std::function<void()>& on_progress) {
  std::set<WeightSink*> sinks;
  std::vector<bf16> piece;
  for (const WeightPlan::Entry& entry : plan.entries) {
    TM_ASSERT(entry.source->format == WeightFormat::kBF16 && entry.source->file.empty(), "{} is stored somewhere",
              entry.source->name);
    sinks.insert(entry.sink);
    const int64_t step = entry.sink->granularity(entry.part);
    const int64_t most = std::max(step, kPieceBytes / step * step);
    for (int64_t begin = entry.begin; begin < entry.end; begin += most) {
      piece.resize(static_cast<size_t>(std::min(most, entry.end - begin)) / sizeof(bf16));
      fill(*entry.source, begin / static_cast<int64_t>(sizeof(bf16)), piece);
      entry.sink->write(entry.part, begin, std::as_bytes(std::span(piece)));
      if (on_progress) on_progress();
    }
  }
  for (WeightSink* sink : sinks) sink->finish();
}

}  // namespace tokenmill
