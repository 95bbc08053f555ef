#include "tests/support/reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tokenmill::reference {

Values rms_norm(const Values& x, const Values& weight, int64_t n, double eps) {
  Values out(x.size());
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(n)) {
    double sum = 0;
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) sum += x[row + i] * x[row + i];
    const double scale = 1 / std::sqrt(sum / static_cast<double>(n) + eps);
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) out[row + i] = x[row + i] * scale * weight[i];
  }
  return out;
}

Values linear(const Values& x, const Values& w, int64_t in_features, const Values& bias, const Values& residual) {
  const auto k = static_cast<size_t>(in_features);
  const size_t rows = x.size() / k, columns = w.size() / k;
  Values out(rows * columns);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      double sum = std::inner_product(&x[r * k], &x[r * k] + k, &w[c * k], 0.0);
      if (!bias.empty()) sum += bias[c];
      if (!residual.empty()) sum += residual[r * columns + c];
      out[r * columns + c] = sum;
    }
  }
  return out;
}

Values gated_silu(const Values& gate_up, int64_t n) {
  const auto width = static_cast<size_t>(n);
  Values out(gate_up.size() / 2);
  for (size_t i = 0; i < out.size(); ++i) {
    const double gate = gate_up[i / width * 2 * width + i % width],
                 up = gate_up[i / width * 2 * width + width + i % width];
    out[i] = gate / (1 + std::exp(-gate)) * up;
  }
  return out;
}

Values sum_parts(const Values& parts, int64_t num_parts) {
  Values out(parts.size() / static_cast<size_t>(num_parts), 0.0);
  for (size_t i = 0; i < parts.size(); ++i) out[i % out.size()] += parts[i];
  return out;
}

Values rope(const Values& x, const std::vector<int64_t>& positions, const std::vector<float>& inv_freq, int64_t dim,
            double multiplier) {
  Values out = x;
  const size_t width = x.size() / positions.size(), half = inv_freq.size();
  for (size_t row = 0; row < positions.size(); ++row) {
    for (size_t head = 0; head < width; head += static_cast<size_t>(dim)) {
      for (size_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(positions[row]) * inv_freq[i];
        const double c = std::cos(double{angle}) * multiplier, s = std::sin(double{angle}) * multiplier;
        const size_t a = row * width + head + i, b = a + half;
        out[a] = x[a] * c - x[b] * s;
        out[b] = x[b] * c + x[a] * s;
      }
    }
  }
  return out;
}

Values attention(const AttentionHead& head, const double* q, int64_t position, const Values& keys,
                 const Values& values) {
  const int64_t low = head.window > 0 ? std::max<int64_t>(0, position + 1 - head.window) : 0;
  Values scores;
  double max = -INFINITY;
  for (int64_t p = low; p <= position; ++p) {
    double score = std::inner_product(q, q + head.k_dim, &keys[static_cast<size_t>(p * head.k_dim)], 0.0) * head.scale;
    if (head.softcap > 0) score = head.softcap * std::tanh(score / head.softcap);
    scores.push_back(score);
    max = std::max(max, score);
  }
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - max);
  Values out(static_cast<size_t>(head.v_dim), 0.0);
  for (size_t i = 0; i < scores.size(); ++i) {
    const size_t row = (static_cast<size_t>(low) + i) * static_cast<size_t>(head.v_dim);
    for (size_t d = 0; d < out.size(); ++d) out[d] += scores[i] / sum * values[row + d];
  }
  return out;
}

Values softmax(const Values& logits, double temperature) {
  const double max = *std::max_element(logits.begin(), logits.end());
  Values out;
  double sum = 0;
  for (const double l : logits) sum += out.emplace_back(std::exp((l - max) / temperature));
  for (double& p : out) p /= sum;
  return out;
}

Values filtered_softmax(const Values& logits, double temperature, const Filter& filter) {
  Values p = softmax(logits, temperature);
  const double max = *std::max_element(p.begin(), p.end());
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  for (size_t i = 0; i < p.size(); ++i) {
    if (filter.min_p > 0 && p[i] < filter.min_p * max) p[i] = 0;
  }
  if (filter.top_k > 0 && filter.top_k < static_cast<int64_t>(p.size())) {
    const double border = logits[order[static_cast<size_t>(filter.top_k - 1)]];
    for (size_t i = 0; i < p.size(); ++i) {
      if (logits[i] < border) p[i] = 0;
    }
  }
  if (filter.top_p < 1) {
    const double total = std::accumulate(p.begin(), p.end(), 0.0);
    double mass = 0;
    bool reached = false;
    for (const size_t i : order) {
      if (reached) {
        p[i] = 0;
      } else {
        mass += p[i];
        reached = mass >= filter.top_p * total;
      }
    }
  }
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
  return p;
}

}  // namespace tokenmill::reference
