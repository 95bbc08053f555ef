#include "engine/models/random_weights.h"

#include <algorithm>
#include <set>
#include <vector>

#include "kernels/core/check.h"
#include "kernels/core/dtype.h"

namespace tokenmill {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr float kLargest = 0.034641F;  // sqrt(3) * 0.02: the standard deviation of a uniform distribution is its half width / sqrt(3)

/// FNV-1a: a tensor's own sequence.
uint64_t seed_of(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

/// The n-th number of a sequence (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
uint64_t number_at(uint64_t seed, uint64_t n) {
  uint64_t z = seed + (n + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

/// Four elements to a number, 16 bits each.
bf16 element_at(uint64_t seed, int64_t element) {
  const uint64_t bits = number_at(seed, static_cast<uint64_t>(element / 4)) >> (16 * (element % 4));
  const auto whole = static_cast<float>(static_cast<int16_t>(bits & 0xffff));
  return to_bf16(whole * (kLargest / 32768));
}

/// Elements [first, first + out.size()) of a tensor.
void fill(const WeightSource& source, int64_t first, std::span<bf16> out) {
  if (source.name.ends_with("norm.weight")) {
    std::fill(out.begin(), out.end(), to_bf16(1));
    return;
  }
  const uint64_t seed = seed_of(source.name);
  for (bf16& value : out) value = element_at(seed, first++);
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
