#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampling.h"

namespace tokenmill {

/// Notices when a sequence repeats itself. One token costs O(max_pattern_size), however often a pattern must repeat.
class RepetitionDetector {
 public:
  /// rules: checked; may be off.
  explicit RepetitionDetector(const RepetitionDetection& rules);

  /// Call once per generated token, with all of them so far. True when they end in min_count or more copies of one
  /// pattern of min_pattern_size (0 counts as 1) to max_pattern_size tokens.
  bool append(std::span<const int32_t> token_ids);

 private:
  int64_t max_size_, min_size_, min_count_;
  /// [p]: how many of the last tokens, without a gap, equal the token p places before them.
  std::vector<int64_t> num_matches_;
};

}  // namespace tokenmill
