#include "engine/models/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/core/check.h"

namespace tokenmill {
namespace {

std::vector<double> plain_frequencies(double theta, int64_t rotary_dim) {
  std::vector<double> inv_freq(rotary_dim / 2);
  for (size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] = std::pow(theta, -2.0 * i / rotary_dim);
  return inv_freq;
}

void scale_llama3(const RopeConfig& c, std::vector<double>& inv_freq) {
  const double length = c.original_max_positions;
  for (double& f : inv_freq) {
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength < length / c.high_freq_factor) continue;
    if (wavelength > length / c.low_freq_factor) {
      f /= c.factor;
      continue;
    }
    const double smooth = (length / wavelength - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
    f = (1 - smooth) * f / c.factor + smooth * f;
  }
}

/// The (fractional) dimension that turns `rotations` times over the original length.
double yarn_dimension(const RopeConfig& c, double rotations) {
  return c.rotary_dim * std::log(c.original_max_positions / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(c.theta));
}

void scale_yarn(const RopeConfig& c, std::vector<double>& inv_freq) {
  double low = yarn_dimension(c, c.beta_fast), high = yarn_dimension(c, c.beta_slow);
  if (c.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, c.rotary_dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inv_freq[i] = inv_freq[i] / c.factor * ramp + inv_freq[i] * (1 - ramp);
  }
}

double yarn_multiplier(const RopeConfig& c) {
  if (c.attention_factor) return *c.attention_factor;
  const auto mscale = [&](double m) { return c.factor <= 1 ? 1.0 : 0.1 * m * std::log(c.factor) + 1; };
  const double above = c.mscale.value_or(0), below = c.mscale_all_dim.value_or(0);
  return above != 0 && below != 0 ? mscale(above) / mscale(below) : mscale(1);
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& c, int64_t max_model_len) {
  TM_ASSERT(c.rotary_dim > 0 && c.rotary_dim % 2 == 0, "rotary_dim {}", c.rotary_dim);
  double theta = c.theta;
  if (c.kind == RopeConfig::Kind::kDynamic) {
    const double length = std::max(max_model_len, c.original_max_positions);
    const double d = c.rotary_dim;
    theta *= std::pow(c.factor * length / c.original_max_positions - (c.factor - 1), d / (d - 2));
  }
  std::vector<double> inv_freq = plain_frequencies(theta, c.rotary_dim);
  if (c.kind == RopeConfig::Kind::kLinear) {
    for (double& f : inv_freq) f /= c.factor;
  }
  if (c.kind == RopeConfig::Kind::kLlama3) scale_llama3(c, inv_freq);
  if (c.kind == RopeConfig::Kind::kYarn) scale_yarn(c, inv_freq);
  if (!c.frequency_divisors.empty()) {
    TM_ASSERT(c.frequency_divisors.size() == inv_freq.size());
    for (size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] /= c.frequency_divisors[i];
  }
  RopeFrequencies out;
  out.inv_freq.assign(inv_freq.begin(), inv_freq.end());
  if (c.kind == RopeConfig::Kind::kYarn) out.multiplier = static_cast<float>(yarn_multiplier(c));
  return out;
}

}  // namespace tokenmill
