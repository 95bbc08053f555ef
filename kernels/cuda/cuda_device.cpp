#include "kernels/cuda/cuda_device.h"

#include <cstdlib>

#include "kernels/core/check.h"
#include "kernels/device/cuda_check.h"

namespace tokenmill::cuda {
namespace {

/// bf16 matrix instructions and cp.async.
constexpr int kLeastCapability = 80;

int capability_of(int device) {
  int major = 0, minor = 0;
  TM_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  TM_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
}

std::string visible_devices_setting() {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  return value == nullptr ? "CUDA_VISIBLE_DEVICES is not set"
                          : std::string("CUDA_VISIBLE_DEVICES is \"") + value + "\"";
}

}  // namespace

int num_visible_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());  // no device or driver: an answer, not a failure
  return 0;
}

Device select_device(int local_rank) {
  TM_ASSERT(local_rank >= 0, "local rank {}", local_rank);
  const int count = num_visible_devices();
  if (count == 0) {
    throw Error(ErrorKind::kDevice, "no CUDA device is visible ({}); run on the CPU or on a node with an NVIDIA GPU",
                visible_devices_setting());
  }
  const Device device{DeviceKind::kCuda, local_rank % count};
  const int capability = capability_of(device.index);
  if (capability < kLeastCapability) {
    throw Error(ErrorKind::kDevice, "{} has compute capability {}.{}; at least {}.{} is needed", to_string(device),
                capability / 10, capability % 10, kLeastCapability / 10, kLeastCapability % 10);
  }
  TM_CUDA(cudaSetDevice(device.index));
  return device;
}

DeviceScope::DeviceScope(Device device) {
  TM_ASSERT(device.kind == DeviceKind::kCuda, "{}", to_string(device));
  TM_CUDA(cudaGetDevice(&before_));
  TM_CUDA(cudaSetDevice(device.index));
}

DeviceScope::~DeviceScope() { static_cast<void>(cudaSetDevice(before_)); }

DeviceFacts device_facts(Device device) {
  const DeviceScope scope(device);
  cudaDeviceProp properties;
  TM_CUDA(cudaGetDeviceProperties(&properties, device.index));
  char pci_bus_id[32] = {};
  TM_CUDA(cudaDeviceGetPCIBusId(pci_bus_id, sizeof pci_bus_id, device.index));
  size_t free_bytes = 0, total_bytes = 0;
  TM_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  return {.name = properties.name,
          .pci_bus_id = pci_bus_id,
          .compute_capability = capability_of(device.index),
          .num_multiprocessors = properties.multiProcessorCount,
          .total_bytes = static_cast<int64_t>(total_bytes),
          .free_bytes = static_cast<int64_t>(free_bytes),
          .l2_bytes = properties.l2CacheSize,
          .smem_per_block_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin)};
}

}  // namespace tokenmill::cuda
