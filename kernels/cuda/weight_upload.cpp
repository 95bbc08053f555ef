#include "kernels/cuda/weight_upload.h"

#include "kernels/cuda/cuda_device.h"

namespace tokenmill::cuda {

void WeightUpload::copy(std::byte* destination, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  const DeviceScope scope(device_);
  staging_.upload(destination, bytes);
}

void WeightUpload::drain() {
  const std::lock_guard lock(mutex_);
  stream_.synchronize();
}

}  // namespace tokenmill::cuda
