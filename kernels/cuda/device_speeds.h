#pragma once
#include <cstdint>

#include "kernels/device/device.h"

namespace tokenmill::cuda {

/// What a device can do. Measured, not looked up: times of kernels and copies are read against these.
struct DeviceSpeeds {
  double copy_gbps = 0;      ///< device memory, bytes read + bytes written; GB = 1e9 bytes
  double upload_gbps = 0;    ///< pinned host memory to device
  double download_gbps = 0;  ///< device to pinned host memory
  double bf16_tflops = 0;    ///< cuBLAS, a square product with f32 sums
  double f32_tflops = 0;     ///< the same of f32, without TF32
};

/// bytes of each copy, side of the product, and repeats; the best repeat counts.
struct ProbeSizes {
  int64_t copy_bytes = int64_t{256} << 20;
  int matrix_size = 8192;
  int repeats = 5;
};

/// Takes 2 * copy_bytes and 3 matrices of device memory meanwhile.
DeviceSpeeds measure_speeds(Device device, const ProbeSizes& sizes = {});

}  // namespace tokenmill::cuda
