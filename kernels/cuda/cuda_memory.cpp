#include "kernels/cuda/cuda_memory.h"

#include <cstring>

#include "kernels/core/check.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/device/cuda_check.h"

namespace tokenmill::cuda {

CudaMemory::CudaMemory(Device device) : device_(device) {
  const DeviceScope scope(device);
  size_t free_bytes = 0, total_bytes = 0;
  TM_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  total_ = static_cast<int64_t>(total_bytes);
}

int64_t CudaMemory::free_bytes() const {
  const DeviceScope scope(device_);
  size_t free_bytes = 0, total_bytes = 0;
  TM_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  return static_cast<int64_t>(free_bytes);
}

Buffer CudaMemory::allocate(int64_t num_bytes) {
  TM_ASSERT(num_bytes >= 0, "{} bytes", num_bytes);
  if (num_bytes == 0) return Buffer(nullptr, 0, device_, nullptr);
  const DeviceScope scope(device_);
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(num_bytes));
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    throw Error(ErrorKind::kDevice, "{}: cannot allocate {} bytes of memory; {} of {} are free", to_string(device_),
                num_bytes, free_bytes(), total_);
  }
  TM_CUDA(error);
  Buffer buffer(memory, num_bytes, device_, [this](void* data, int64_t bytes) {
    static_cast<void>(cudaFree(data));  // after a failed kernel nothing can be freed, and nothing needs to be
    used_.fetch_sub(bytes, std::memory_order_relaxed);
  });
  const int64_t used = used_.fetch_add(num_bytes, std::memory_order_relaxed) + num_bytes;
  int64_t peak = peak_.load(std::memory_order_relaxed);
  while (peak < used && !peak_.compare_exchange_weak(peak, used, std::memory_order_relaxed)) {
  }
  // The default stream, which other streams do not wait for: the zeros are there when this returns.
  TM_CUDA(cudaMemsetAsync(memory, 0, static_cast<size_t>(num_bytes), nullptr));
  TM_CUDA(cudaStreamSynchronize(nullptr));
  return buffer;
}

Buffer CudaMemory::allocate_host(int64_t num_bytes) {
  TM_ASSERT(num_bytes >= 0, "{} bytes", num_bytes);
  const Device host{DeviceKind::kCpu, 0};
  if (num_bytes == 0) return Buffer(nullptr, 0, host, nullptr);
  const DeviceScope scope(device_);
  void* memory = nullptr;
  TM_CUDA(cudaMallocHost(&memory, static_cast<size_t>(num_bytes)));
  std::memset(memory, 0, static_cast<size_t>(num_bytes));
  return Buffer(memory, num_bytes, host, [](void* data, int64_t) { static_cast<void>(cudaFreeHost(data)); });
}

}  // namespace tokenmill::cuda
