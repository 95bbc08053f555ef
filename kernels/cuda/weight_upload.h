#pragma once
#include <cstddef>
#include <mutex>
#include <span>

#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/pinned_staging.h"

namespace tokenmill::cuda {

/// Carries weights to the device on a stream of its own, so that steps and other copies go on meanwhile. Several loader
/// threads may use it.
class WeightUpload {
 public:
  explicit WeightUpload(Device device, Memory& memory) : device_(device), stream_(device), staging_(memory, stream_) {}

  /// The bytes may change as soon as it returns.
  void copy(std::byte* destination, std::span<const std::byte> bytes);
  /// Returns when all copies so far have arrived.
  void drain();

 private:
  const Device device_;
  std::mutex mutex_;
  CudaStream stream_;
  PinnedStaging staging_;
};

}  // namespace tokenmill::cuda
