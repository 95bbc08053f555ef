#pragma once
#include <cstdint>
#include <string>

#include "jobs/journal/sign_of_life.h"

namespace tokenmill::jobs {

class OutputDir;

/// Waits until the run that a journal belongs to is over; jobs/README.md, "Whose a journal is".
class Predecessor {
 public:
  static constexpr double kSilent_s = 10 * SignOfLife::kBetween_s;
  /// silent_s: a run that shows no sign of life for so long is taken for dead, where nothing else says that it is.
  explicit Predecessor(double silent_s = kSilent_s) : silent_s_(silent_s) {}

  /// Returns when the directory holds no journal, or one whose owner is over or is the run with own_token. A verdict
  /// holds as long as the journal shows the same: asking again waits no second time. Throws Error(kConfig) naming an
  /// owner that lives.
  void wait_until_over(const OutputDir& directory, const std::string& own_token = "");

 private:
  double silent_s_;
  std::string over_token_;  // of the owner that was waited for
  int64_t over_sign_ns_ = 0;
};

}  // namespace tokenmill::jobs
