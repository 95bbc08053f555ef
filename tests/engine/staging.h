#pragma once
#include <vector>

#include "kernels/ops.h"

namespace tokenmill::test {

/// What a contiguous device view holds once everything enqueued has been done.
template <typename T>
std::vector<T> read(Ops& ops, const TensorView& view) {
  std::vector<T> values(static_cast<size_t>(view.num_elements()));
  ops.stream().copy(values.data(), view.data(), view.num_elements() * static_cast<int64_t>(sizeof(T)));
  ops.stream().wait(ops.stream().record());
  return values;
}

/// Gives a contiguous device view these values.
template <typename T>
void write(Ops& ops, const TensorView& view, const std::vector<T>& values) {
  ops.stream().copy(view.data(), values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
  ops.stream().wait(ops.stream().record());
}

}  // namespace tokenmill::test
