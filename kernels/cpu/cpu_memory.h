#pragma once
#include <atomic>
#include <cstdint>

#include "kernels/device/memory.h"

namespace tokenmill::cpu {

/// Bytes this process may use: the smaller of physical memory and the limits of its control groups.
int64_t usable_memory_bytes();

/// Host memory as device memory: pages come zeroed from the kernel, buffers of 2 MiB and more ask for huge pages.
/// Thread-safe.
class CpuMemory : public Memory {
 public:
  CpuMemory() : total_(usable_memory_bytes()) {}
  Buffer allocate(int64_t num_bytes) override;
  Buffer allocate_host(int64_t num_bytes) override { return allocate(num_bytes); }
  int64_t total_bytes() const override { return total_; }
  int64_t used_bytes() const override { return used_.load(std::memory_order_relaxed); }
  int64_t peak_bytes() const override { return peak_.load(std::memory_order_relaxed); }

 private:
  const int64_t total_;
  std::atomic<int64_t> used_{0}, peak_{0};
};

}  // namespace tokenmill::cpu
