#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/core/tensor.h"

namespace tokenmill {

/// What a row brings of its prompt's hidden states: those of the last layer, behind the final norm.
enum class HiddenStates : uint8_t {
  kNone,
  kLast,  ///< of the last token
  kMean,  ///< the mean over all tokens
};
const char* to_string(HiddenStates choice);  ///< "none", "last", "mean"

/// The mean of a prompt's hidden states, taken in order of position, whatever steps they come in: one bit pattern.
class HiddenMean {
 public:
  /// rows [N, hidden_size] f32, bf16 or f16 in host memory: the next positions.
  void add(const TensorView& rows);
  /// In f32 (sums are f64, rounded once); of one position its very values. Empties it.
  std::vector<float> take();

 private:
  std::vector<double> sums_;
  int64_t num_rows_ = 0;
};

/// Index of the first value that is NaN or infinite, if there is one.
std::optional<int64_t> first_non_finite(const std::vector<float>& values);

}  // namespace tokenmill
