#pragma once
#include "kernels/linear.h"
#include "kernels/ops.h"

namespace tokenmill::test {

/// The rows of a linear that FakeOps made, [out_features, in_features] f32.
TensorView fake_table(const Linear& linear);

/// out = x w^T (+ bias) (+ residual), sums in f64.
void fake_multiply(const TensorView& out, const TensorView& x, const TensorView& w, const LinearCall& call);

}  // namespace tokenmill::test
