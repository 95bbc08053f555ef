#include "engine/admission.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/core/check.h"

namespace tokenmill {

size_t LengthPredictor::bucket_of(int64_t length) {
  if (length < kExact) return static_cast<size_t>(length);
  const auto value = static_cast<uint64_t>(length);
  const int octave = std::bit_width(value) - 1;  // at least 5
  return static_cast<size_t>(kExact) + static_cast<size_t>(octave - 5) * 16 + ((value >> (octave - 4)) & 15);
}

int64_t LengthPredictor::longest_of(size_t bucket) {
  if (bucket < static_cast<size_t>(kExact)) return static_cast<int64_t>(bucket);
  const size_t above = bucket - static_cast<size_t>(kExact);
  const auto step = int64_t{1} << (above / 16 + 1);  // an octave from 2^(above / 16 + 5) in 16 buckets
  return (static_cast<int64_t>(above % 16) + 17) * step - 1;
}

void LengthPredictor::add(int64_t num_generated) {
  ++counts_[bucket_of(num_generated)];
  if (++num_rows_ < kFirstRows) return;
  const auto wanted = static_cast<int64_t>(std::ceil(kQuantile * static_cast<double>(num_rows_)));
  int64_t below = 0;
  for (size_t bucket = 0; bucket < counts_.size(); ++bucket) {
    below += counts_[bucket];
    if (below < wanted) continue;
    quantile_ = longest_of(bucket);
    return;
  }
}

int64_t LengthPredictor::predict(const Sequence& sequence) const {
  const int64_t generated = sequence.num_tokens() - sequence.num_prompt_tokens();
  // One that is longer than foreseen is expected to go on for another quarter.
  const int64_t expected = generated < quantile_ ? quantile_ : generated + generated / 4 + 1;
  return std::min(sequence.max_num_tokens(), sequence.num_prompt_tokens() + expected);
}

Admission::Admission(const RunnerLimits& limits, const SchedulerOptions& options)
    : watermark_(options.watermark),
      max_chunk_(limits.max_num_batched_tokens),
      steps_in_flight_(limits.max_steps_in_flight),
      lengths_(options.first_length_guess),
      committed_(limits.kv_groups.size(), 0) {
  TM_ASSERT(watermark_ >= 0 && watermark_ < 1, "a watermark of {}", watermark_);
  if (options.enable_chunked_prefill && options.long_prefill_token_threshold > 0) {
    max_chunk_ = std::min(max_chunk_, options.long_prefill_token_threshold);
  }
}

int64_t Admission::peak_blocks(const BlockManager& blocks, int group, const Sequence& sequence) const {
  // The last token is never computed, but what is known must be.
  const int64_t num_computed = std::max(lengths_.predict(sequence) - 1, sequence.num_known_tokens());
  const int64_t to_compute = std::max<int64_t>(1, sequence.num_tokens() - sequence.num_computed_tokens());
  // Blocks behind a window are free only when the steps that used them have been collected.
  const int64_t chunk = std::min(std::max<int64_t>(to_compute, steps_in_flight_), max_chunk_ * steps_in_flight_);
  return blocks.num_live_blocks_for(group, std::min(num_computed, sequence.max_num_computed()), chunk);
}

void Admission::commit(const BlockManager& blocks, const Sequence& sequence) {
  for (int g = 0; g < blocks.num_groups(); ++g) {
    const auto at = static_cast<size_t>(g);
    const auto held = static_cast<int64_t>(sequence.blocks().tables[at].size()) - sequence.blocks().first_kept[at];
    committed_[at] += std::max<int64_t>(0, peak_blocks(blocks, g, sequence) - held);
  }
}

void Admission::begin(const BlockManager& blocks, std::span<const std::unique_ptr<Sequence>> running) {
  std::fill(committed_.begin(), committed_.end(), 0);
  for (const std::unique_ptr<Sequence>& sequence : running) {
    if (sequence->status() == SequenceStatus::kRunning) commit(blocks, *sequence);
  }
}

bool Admission::fits(const BlockManager& blocks, const Sequence& sequence, const PrefixHit& hit) const {
  for (int g = 0; g < blocks.num_groups(); ++g) {
    const auto kept_free = static_cast<int64_t>(watermark_ * static_cast<double>(blocks.num_blocks(g)));
    const int64_t more = std::max<int64_t>(0, peak_blocks(blocks, g, sequence) - blocks.num_held_by(g, hit));
    const int64_t left = blocks.num_free_blocks(g) - committed_[static_cast<size_t>(g)];
    if (left - blocks.num_free_blocks_used(g, hit) - more < kept_free) return false;
  }
  return true;
}

void Admission::admitted(const BlockManager& blocks, const Sequence& sequence) { commit(blocks, sequence); }

}  // namespace tokenmill
