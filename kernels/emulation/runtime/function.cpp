// Attributes of kernels and occupancy. Registers are not known here: occupancy counts threads and shared memory.
#include <algorithm>

#include "kernels/emulation/runtime/limits.h"
#include "kernels/emulation/runtime/scheduler.h"

using namespace tokenmill::emulation;  // the definitions below are the C functions of cuda_runtime_api.h

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return api("cudaFuncSetAttribute", InCapture::kAllowed, [&](Call& call) {
    if (function == nullptr) return call.fail(cudaErrorInvalidDeviceFunction, "the function is null");
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
      return value >= -1 && value <= 100 ? cudaSuccess : call.fail(cudaErrorInvalidValue, "a carveout of {} %", value);
    }
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
      return call.fail(cudaErrorInvalidValue, "attribute {} is not emulated", static_cast<int>(attribute));
    }
    if (value < 0 || static_cast<size_t>(value) > limits().smem_per_block) {
      return call.fail(cudaErrorInvalidValue, "{} bytes of dynamic shared memory; the device has {}", value,
                       limits().smem_per_block);
    }
    state().dynamic_smem_limits[function] = static_cast<size_t>(value);
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return api("cudaFuncGetAttributes", InCapture::kAllowed, [&](Call& call) {
    if (function == nullptr) return call.fail(cudaErrorInvalidDeviceFunction, "the function is null");
    *attributes = {};
    const auto found = state().dynamic_smem_limits.find(function);
    attributes->maxDynamicSharedSizeBytes =
        found == state().dynamic_smem_limits.end() ? 48 << 10 : static_cast<int>(found->second);
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = state().settings.compute_capability;
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* num_blocks, const void* function,
                                                                   int block_size, size_t dynamic_smem, unsigned) {
  return api("cudaOccupancyMaxActiveBlocksPerMultiprocessor", InCapture::kAllowed, [&](Call& call) {
    if (function == nullptr) return call.fail(cudaErrorInvalidDeviceFunction, "the function is null");
    if (block_size < 1 || block_size > 1024)
      return call.fail(cudaErrorInvalidValue, "blocks of {} threads", block_size);
    const int by_threads = kThreadsPerMultiprocessor / ((block_size + 31) / 32 * 32);
    const auto by_smem = static_cast<int>(limits().smem_per_multiprocessor / (dynamic_smem + kReservedSmem));
    *num_blocks = std::min({by_threads, by_smem, kBlocksPerMultiprocessor});
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* num_blocks, const void* function, int block_size,
                                                          size_t dynamic_smem) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(num_blocks, function, block_size, dynamic_smem, 0);
}
