#include "engine/repetition_detector.h"

#include <algorithm>

namespace tokenmill {

constexpr int64_t kNever = int64_t{1} << 31;  // no sequence is that long: larger rules mean the same

RepetitionDetector::RepetitionDetector(const RepetitionDetection& rules)
    : max_size_(std::min(rules.max_pattern_size, kNever)),
      min_size_(std::max<int64_t>(rules.min_pattern_size, 1)),
      min_count_(std::min(rules.min_count, kNever)) {}

bool RepetitionDetector::append(std::span<const int32_t> token_ids) {
  const auto num_tokens = static_cast<int64_t>(token_ids.size());
  const int64_t longest = std::min(max_size_, num_tokens - 1);
  if (longest < min_size_) return false;
  num_matches_.resize(static_cast<size_t>(longest) + 1);
  bool found = false;
  for (int64_t size = min_size_; size <= longest; ++size) {  // to the end: every count must see every token
    int64_t& matches = num_matches_[static_cast<size_t>(size)];
    const size_t last = token_ids.size() - 1;
    matches = token_ids[last] == token_ids[last - static_cast<size_t>(size)] ? matches + 1 : 0;
    found = found || matches >= size * (min_count_ - 1);
  }
  return found;
}

}  // namespace tokenmill
