#include "kernels/core/histogram.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/core/distributions.h"
#include "kernels/core/error.h"

namespace tokenmill {
namespace {

constexpr double kError = 1.0 / 64;

std::vector<double> spread_values(size_t count) {
  std::mt19937_64 random(7);
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i) values.push_back(std::exp2(std::uniform_real_distribution<>(-19, 20)(random)));
  return values;
}

Histogram of(const std::vector<double>& values) {
  Histogram histogram;
  for (const double value : values) histogram.add(value);
  return histogram;
}

TEST_CASE("quantiles are known to 1/64 of their value, the rest exactly") {
  std::vector<double> values = spread_values(5000);
  const Histogram histogram = of(values);
  std::sort(values.begin(), values.end());
  for (const double share : {0.0001, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 1.0}) {
    CAPTURE(share);
    const double exact = values[static_cast<size_t>(std::ceil(share * 5000)) - 1];
    CHECK(std::fabs(histogram.quantile(share) - exact) <= exact * kError);
  }
  double sum = 0;
  for (const double value : values) sum += value;
  CHECK(histogram.count() == 5000);
  CHECK(histogram.sum() == doctest::Approx(sum));
  CHECK(histogram.min() == values.front());
  CHECK(histogram.max() == values.back());
}

TEST_CASE("small whole numbers are exact when rounded down, and so is a single value") {
  Histogram histogram;
  for (int i = 1; i <= 63; ++i) histogram.add(i);
  for (int i = 1; i <= 63; ++i) CHECK(std::floor(histogram.quantile(i / 63.0)) == i);
  CHECK(of({0.0123}).quantile(0.5) == 0.0123);
}

TEST_CASE("mean and standard deviation") {
  const Histogram histogram = of({1, 2, 3, 4});
  CHECK(histogram.mean() == 2.5);
  CHECK(histogram.standard_deviation() == doctest::Approx(std::sqrt(1.25)));
  CHECK(Histogram().mean() == 0);
  CHECK(Histogram().quantile(0.5) == 0);
  CHECK(Histogram().standard_deviation() == 0);
}

TEST_CASE("counts up to a bound rise with it and are right away from bucket borders") {
  const std::vector<double> values = spread_values(3000);
  const Histogram histogram = of(values);
  int64_t last = 0;
  for (double bound = 1e-7; bound < 1e8; bound *= 1.01) {
    const int64_t counted = histogram.count_up_to(bound);
    CHECK(counted >= last);
    last = counted;
    const auto at_most = [&](double limit) {
      return std::count_if(values.begin(), values.end(), [&](double value) { return value <= limit; });
    };
    CHECK(counted >= at_most(bound * (1 - kError)));
    CHECK(counted <= at_most(bound * (1 + 2 * kError)));
  }
  CHECK(last == 3000);
}

TEST_CASE("values outside the range are counted at its ends") {
  const Histogram histogram = of({0, -1, 1e-9, std::nan(""), 1e12, std::numeric_limits<double>::infinity()});
  CHECK(histogram.count() == 6);
  CHECK(histogram.quantile(0.5) == 0);
  CHECK(histogram.quantile(1) == std::numeric_limits<double>::infinity());
  CHECK(histogram.min() == 0);
}

TEST_CASE("merged halves are the whole, also by way of bytes") {
  const std::vector<double> values = spread_values(1000);
  const size_t middle = 300;
  Histogram left = of({values.begin(), values.begin() + middle});
  const Histogram right = of({values.begin() + middle, values.end()});
  std::string bytes;
  right.serialize(bytes);
  bytes += "behind";
  std::string_view rest = bytes;
  left.merge(Histogram::deserialize(rest));
  CHECK(rest == "behind");
  const Histogram whole = of(values);
  for (const double share : {0.1, 0.5, 0.99}) CHECK(left.quantile(share) == whole.quantile(share));
  CHECK(left.count() == whole.count());
  CHECK(left.sum() == doctest::Approx(whole.sum()));
  CHECK(left.min() == whole.min());
  CHECK(left.max() == whole.max());
  left.merge(Histogram());
  CHECK(left.min() == whole.min());
  std::string_view cut = std::string_view(bytes).substr(0, 60);
  CHECK_THROWS_AS(Histogram::deserialize(cut), Error);
}

TEST_CASE("distributions travel as bytes and add up") {
  Distributions a, b;
  a.ttft_s.add(1);
  b.ttft_s.add(3);
  b.step_tokens.add(17, 4);
  a.merge(Distributions::deserialize(b.serialize()));
  CHECK(a.ttft_s.count() == 2);
  CHECK(a.ttft_s.mean() == 2);
  CHECK(a.step_tokens.count() == 4);
  CHECK(a.step_tokens.quantile(0.5) == 17);
  CHECK(a.queue_s.count() == 0);
  CHECK_THROWS_AS(Distributions::deserialize(b.serialize() + "x"), Error);
}

}  // namespace
}  // namespace tokenmill
