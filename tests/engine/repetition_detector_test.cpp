#include "engine/repetition_detector.h"

#include <doctest/doctest.h>

#include <random>

using namespace tokenmill;

namespace {

/// By definition: do the last tokens hold min_count copies of one pattern?
bool repeats(std::span<const int32_t> ids, const RepetitionDetection& rules) {
  const auto n = static_cast<int64_t>(ids.size());
  for (int64_t size = std::max<int64_t>(rules.min_pattern_size, 1); size <= rules.max_pattern_size; ++size) {
    if (size * rules.min_count > n) return false;
    bool equal = true;
    for (int64_t i = n - size * rules.min_count; i + size < n; ++i)
      equal = equal && ids[static_cast<size_t>(i)] == ids[static_cast<size_t>(i + size)];
    if (equal) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("repetition is found with the token that completes it, for every kind of rule") {
  std::mt19937 random(7);
  for (const RepetitionDetection rules :
       {RepetitionDetection{1, 1, 2}, RepetitionDetection{1, 0, 3}, RepetitionDetection{3, 2, 2},
        RepetitionDetection{5, 1, 4}, RepetitionDetection{8, 8, 2}}) {
    int64_t found = 0;
    for (int trial = 0; trial < 200; ++trial) {
      RepetitionDetector detector(rules);
      std::vector<int32_t> ids;
      for (int i = 0; i < 40; ++i) {
        ids.push_back(static_cast<int32_t>(random() % 2));
        const bool got = detector.append(ids);
        REQUIRE(got == repeats(ids, rules));
        found += got;
      }
    }
    CHECK(found > 0);
  }
}

TEST_CASE("rules that are off or ask for more than any sequence holds never find anything") {
  constexpr int64_t kHuge = int64_t{1} << 62;
  for (const RepetitionDetection rules :
       {RepetitionDetection{}, RepetitionDetection{4, 1, kHuge}, RepetitionDetection{kHuge, kHuge, 2}}) {
    RepetitionDetector detector(rules);
    std::vector<int32_t> ids;
    for (int i = 0; i < 100; ++i) {
      ids.push_back(1);
      CHECK_FALSE(detector.append(ids));
    }
  }
}
