#pragma once
#include <functional>

#include "engine/models/weights.h"

namespace tokenmill {

/// In place of load_weights(), for a plan over a random catalog: fills the sinks with bfloat16 numbers and finishes
/// them. A number depends on its tensor's name and its place in the tensor alone, so that every layout over ranks, every
/// device and every run has the same model. Matrices and biases: uniform with standard deviation 0.02, as Hugging Face
/// initialises Llama (initializer_range); norms: 1. on_progress: after every piece; may be empty.
void make_random_weights(const WeightPlan& plan, const std::function<void()>& on_progress = {});

}  // namespace tokenmill
