#include "tests/support/reference_sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tokenmill::reference {

Values adjusted(const Values& logits, const SamplerRow& row) {
  Values x = logits;
  std::vector<int64_t> generated(x.size(), 0);
  std::vector<bool> seen(x.size(), false);
  for (const int32_t id : row.prompt_ids) seen[static_cast<size_t>(id)] = true;
  for (const int32_t id : row.generated_ids) {
    seen[static_cast<size_t>(id)] = true;
    ++generated[static_cast<size_t>(id)];
  }
  for (size_t i = 0; i < x.size(); ++i) {
    if (!row.bias.empty()) x[i] += row.bias[i];
    if (seen[i]) x[i] = x[i] > 0 ? x[i] / row.repetition_penalty : x[i] * row.repetition_penalty;
    if (generated[i] == 0) continue;
    x[i] -= row.frequency_penalty * static_cast<double>(generated[i]) + row.presence_penalty;
  }
  for (const int32_t id : row.masked_ids) x[static_cast<size_t>(id)] = -INFINITY;
  return x;
}

namespace {

/// How close the filters' borders come to a value that they divide.
double filter_margin(const Values& x, const SamplerRow& row) {
  const Values p = softmax(x, row.temperature);
  Values sorted_x = x;
  std::sort(sorted_x.rbegin(), sorted_x.rend());
  const double max = *std::max_element(p.begin(), p.end());
  double margin = 1;
  for (const double q : p) {
    if (row.filter.min_p > 0 && q != max) margin = std::min(margin, std::abs(q / max / row.filter.min_p - 1));
  }
  const auto k = static_cast<size_t>(row.filter.top_k);
  if (k > 0 && k < x.size() && sorted_x[k] != sorted_x[k - 1]) {
    margin = std::min(margin, sorted_x[k - 1] - sorted_x[k]);
  }
  if (row.filter.top_p < 1) {
    Values left = filtered_softmax(x, row.temperature, {row.filter.min_p, row.filter.top_k, 1});
    std::sort(left.rbegin(), left.rend());
    double mass = 0;
    for (const double q : left) margin = std::min(margin, std::abs((mass += q) - row.filter.top_p));
  }
  return margin;
}

}  // namespace

Draw draw(const Values& logits, const SamplerRow& row, double u) {
  const Values x = adjusted(logits, row);
  const auto best = std::max_element(x.begin(), x.end());
  Draw out;
  if (*best == -INFINITY) return out;
  out.id = best - x.begin();
  if (row.temperature <= 0) {
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] != *best) out.margin = std::min(out.margin, *best - x[i]);
    }
    return out;
  }
  out.margin = filter_margin(x, row);
  const Values p = filtered_softmax(x, row.temperature, row.filter);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 0 && sum <= u) out.id = static_cast<int64_t>(i);
    sum += p[i];
    if (p[i] > 0 && sum < 1 - 1e-9) out.margin = std::min(out.margin, std::abs(sum - u));
  }
  return out;
}

double logprob(const Values& logits, int64_t id) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double l : logits) sum += std::exp(l - max);
  return logits[static_cast<size_t>(id)] - max - std::log(sum);
}

int64_t rank(const Values& logits, int64_t id) {
  const double value = logits[static_cast<size_t>(id)];
  return 1 + std::count_if(logits.begin(), logits.end(), [&](double l) { return l > value; });
}

std::vector<int64_t> most_likely(const Values& logits, int64_t k) {
  std::vector<int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), int64_t{0});
  std::stable_sort(ids.begin(), ids.end(), [&](int64_t a, int64_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  ids.resize(static_cast<size_t>(std::min<int64_t>(k, static_cast<int64_t>(ids.size()))));
  return ids;
}

}  // namespace tokenmill::reference
