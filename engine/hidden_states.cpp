#include "engine/hidden_states.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/core/check.h"

namespace tokenmill {
namespace {

template <typename T>
void add_rows(const TensorView& rows, std::vector<double>& sums) {
  for (int64_t i = 0; i < rows.rows(); ++i) {
    const T* row = rows.row<T>(i);
    for (size_t k = 0; k < sums.size(); ++k) sums[k] += static_cast<double>(to_float(row[k]));
  }
}

}  // namespace

const char* to_string(HiddenStates choice) {
  switch (choice) {
    case HiddenStates::kLast:
      return "last";
    case HiddenStates::kMean:
      return "mean";
    default:
      return "none";
  }
}

void HiddenMean::add(const TensorView& rows) {
  sums_.resize(static_cast<size_t>(rows.cols()), 0.0);
  num_rows_ += rows.rows();
  switch (rows.dtype()) {
    case DType::kBF16:
      return add_rows<bf16>(rows, sums_);
    case DType::kF16:
      return add_rows<f16>(rows, sums_);
    default:
      return add_rows<float>(rows, sums_);
  }
}

std::vector<float> HiddenMean::take() {
  TM_ASSERT(num_rows_ > 0);
  std::vector<float> mean;
  mean.reserve(sums_.size());
  for (const double sum : sums_) mean.push_back(static_cast<float>(sum / static_cast<double>(num_rows_)));
  *this = {};
  return mean;
}

std::optional<int64_t> first_non_finite(const std::vector<float>& values) {
  const auto found = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  if (found == values.end()) return std::nullopt;
  return found - values.begin();
}

}  // namespace tokenmill
