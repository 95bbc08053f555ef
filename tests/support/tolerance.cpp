#include "tests/support/tolerance.h"

#include <fmt/format.h>

#include <cmath>

namespace tokenmill::test {

std::string differences(const std::vector<double>& got, const std::vector<double>& want, Tolerance tolerance) {
  if (got.size() != want.size()) return fmt::format("{} values instead of {}", got.size(), want.size());
  size_t worst = 0, bad = 0;
  double worst_excess = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    const double excess = std::abs(got[i] - want[i]) - (tolerance.absolute + tolerance.relative * std::abs(want[i]));
    if (excess <= 0) continue;
    ++bad;
    if (!(excess <= worst_excess)) {
      worst_excess = excess;
      worst = i;
    }
  }
  if (bad == 0) return "";
  return fmt::format("{} of {} values differ, worst at {}: got {}, want {}", bad, got.size(), worst, got[worst],
                     want[worst]);
}

}  // namespace tokenmill::test
