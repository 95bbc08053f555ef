#pragma once
#include <fmt/format.h>

#include <utility>

#include "kernels/core/error.h"
#include "kernels/core/tensor.h"

/// Of ops*.cpp: one form for what they say about arguments that do not fit.
namespace tokenmill::checks {

template <typename... Args>
[[noreturn]] void fail(const char* op, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::kInternal, "{}: {}", op, fmt::format(format, std::forward<Args>(args)...));
}

/// `view` must be [rows, cols] of dtype; `because` says what it has to match.
struct Expect {
  const char* op;
  void matrix(const char* name, const TensorView& view, int64_t rows, int64_t cols, DType dtype, const char* because,
              const TensorView& other) const {
    if (view.rank() == 2 && view.size(0) == rows && view.cols() == cols && view.dtype() == dtype) return;
    fail(op, "{} {} does not match {} {}; expected {} [{}, {}]", name, view.describe(), because, other.describe(),
         to_string(dtype), rows, cols);
  }
  void vector(const char* name, const TensorView& view, int64_t size, DType dtype, const char* because,
              const TensorView& other) const {
    if (view.rank() == 1 && view.cols() == size && view.dtype() == dtype) return;
    fail(op, "{} {} does not match {} {}; expected {} [{}]", name, view.describe(), because, other.describe(),
         to_string(dtype), size);
  }
  /// [rows, cols] of the dtypes that activations have.
  void activations(const char* name, const TensorView& view) const {
    if (view.rank() == 2 &&
        (view.dtype() == DType::kF32 || view.dtype() == DType::kBF16 || view.dtype() == DType::kF16)) {
      return;
    }
    fail(op, "{} is {}; it must be a matrix of float32, bfloat16 or float16", name, view.describe());
  }
};

}  // namespace tokenmill::checks
