#pragma once
#include <string>
#include <vector>

#include "kernels/core/dtype.h"

namespace tokenmill::test {

/// How far a result may lie from the f64 reference: |got - want| <= absolute + relative * |want|.
struct Tolerance {
  double absolute, relative;
};

/// The one table. f32: sums of a few thousand products of values near 1 in another order. bf16: inputs are exact, the
/// result is rounded once to 8 bits of mantissa (2^-9 relative), plus the f32 error before it.
inline Tolerance tolerance(DType dtype) {
  return dtype == DType::kF32 ? Tolerance{2e-5, 2e-5} : Tolerance{2e-3, 1.0 / 128};
}

/// Empty when all values agree, NaN with NaN only; else a line naming the worst index, what came and what was wanted.
std::string differences(const std::vector<double>& got, const std::vector<double>& want, Tolerance tolerance);

}  // namespace tokenmill::test
