#pragma once
#include <cstdint>

namespace tokenmill::cpu {

/// Filters of one row's candidates, applied in this order; see Ops::pick.
struct RowFilter {
  float min_p = 0;    ///< 0: off
  int32_t top_k = 0;  ///< 0 or less: off
  float top_p = 1;    ///< 1 or more: off
  bool active() const { return min_p > 0 || top_k > 0 || top_p < 1; }
  bool is_top_p_alone() const { return top_p < 1 && top_k <= 0 && min_p <= 0; }
};

/// A value of scaled that the filter keeps nothing below, as far as that can be said without looking at the ids: total
/// is the sum of all n weights. Minus infinity when it cannot.
float lower_bound(const RowFilter& filter, int64_t n, double total);

/// Sets the weights of removed ids to 0; at least the most likely id stays. scaled[i] = (logit - max) / temperature <=
/// 0, weight[i] = exp(scaled[i]), of n ids in ascending order; candidates: room for n indices. total: the sum of all
/// weights, those left out by lower_bound() included; used with top-p alone. Work: two passes over the ids and a sort
/// of the one histogram bucket that a border falls into.
void apply_filter(const RowFilter& filter, const float* scaled, float* weight, int64_t n, double total,
                  int32_t* candidates);

}  // namespace tokenmill::cpu
