#pragma once
#include <atomic>
#include <cstdint>

#include "kernels/device/memory.h"

namespace tokenmill::cuda {

/// Memory of one CUDA device. Sizes count device memory alone, not pinned host memory. Allocating and freeing wait for
/// the device: for start-up, never in a step. Thread-safe.
class CudaMemory : public Memory {
 public:
  explicit CudaMemory(Device device);
  Buffer allocate(int64_t num_bytes) override;
  /// Pinned and zeroed.
  Buffer allocate_host(int64_t num_bytes) override;
  int64_t total_bytes() const override { return total_; }
  int64_t used_bytes() const override { return used_.load(std::memory_order_relaxed); }
  int64_t peak_bytes() const override { return peak_.load(std::memory_order_relaxed); }
  int64_t free_bytes() const override;
  Device device() const { return device_; }

 private:
  const Device device_;
  int64_t total_ = 0;
  std::atomic<int64_t> used_{0}, peak_{0};
};

}  // namespace tokenmill::cuda
