#pragma once
// The device that tests of kernels/cuda run on: a GPU, or the emulated one.
#include <doctest/doctest.h>

#include <optional>

#include "kernels/cuda/cuda_device.h"

namespace tokenmill::test {

/// Nothing, with the reason printed, where a build for GPUs runs on a machine without one.
inline std::optional<Device> cuda_device() {
  if (cuda::num_visible_devices() == 0) {
    MESSAGE("skipped: no CUDA device is visible");
    return std::nullopt;
  }
  return cuda::select_device(0);
}

}  // namespace tokenmill::test
