// The emulated devices: properties of an A100 or an H100 where kernels depend on them, by the settings' capability.
#include <cstring>

#include "kernels/emulation/runtime/limits.h"
#include "kernels/emulation/runtime/scheduler.h"

namespace tokenmill::emulation {

Limits limits() {
  const int capability = state().settings.compute_capability;
  if (capability >= 90) return {.smem_per_block = 232448, .smem_per_multiprocessor = 233472};
  if (capability == 80) return {.smem_per_block = 166912, .smem_per_multiprocessor = 167936};
  return {.smem_per_block = 101376, .smem_per_multiprocessor = 102400};
}

namespace {

cudaError_t check_device(Call& call, int device) {
  if (device >= 0 && device < state().settings.num_devices) return cudaSuccess;
  return call.fail(cudaErrorInvalidDevice, "device {} of {}", device, state().settings.num_devices);
}

void fill_properties(cudaDeviceProp& properties, int device) {
  const Settings& settings = state().settings;
  properties = {};
  fmt::format_to_n(properties.name, sizeof properties.name - 1, "tokenmill emulated sm_{}",
                   settings.compute_capability);
  properties.major = settings.compute_capability / 10;
  properties.minor = settings.compute_capability % 10;
  properties.multiProcessorCount = settings.num_multiprocessors;
  properties.totalGlobalMem = settings.memory_bytes;
  properties.sharedMemPerBlock = 48 << 10;
  properties.sharedMemPerBlockOptin = limits().smem_per_block;
  properties.sharedMemPerMultiprocessor = limits().smem_per_multiprocessor;
  properties.reservedSharedMemPerBlock = kReservedSmem;
  properties.regsPerBlock = properties.regsPerMultiprocessor = 65536;
  properties.warpSize = 32;
  properties.maxThreadsPerBlock = 1024;
  properties.maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
  properties.maxBlocksPerMultiProcessor = kBlocksPerMultiprocessor;
  const int max_block[] = {1024, 1024, 64}, max_grid[] = {0x7FFFFFFF, 65535, 65535};
  std::memcpy(properties.maxThreadsDim, max_block, sizeof max_block);
  std::memcpy(properties.maxGridSize, max_grid, sizeof max_grid);
  properties.totalConstMem = 65536;
  properties.l2CacheSize = 4 << 20;
  properties.memoryBusWidth = 1024;
  properties.asyncEngineCount = 2;
  properties.concurrentKernels = properties.unifiedAddressing = properties.canMapHostMemory = 1;
  properties.memoryPoolsSupported = properties.computePreemptionSupported = 1;
  properties.pciBusID = device + 1;
  properties.uuid.bytes[0] = static_cast<char>(device + 1);
}

/// The attributes that have a counterpart in the properties and are asked for on hot paths; others are refused by
/// number.
std::optional<int> attribute_of(const cudaDeviceProp& properties, cudaDeviceAttr attribute) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      return properties.major;
    case cudaDevAttrComputeCapabilityMinor:
      return properties.minor;
    case cudaDevAttrMultiProcessorCount:
      return properties.multiProcessorCount;
    case cudaDevAttrWarpSize:
      return properties.warpSize;
    case cudaDevAttrMaxThreadsPerBlock:
      return properties.maxThreadsPerBlock;
    case cudaDevAttrMaxBlockDimX:
      return properties.maxThreadsDim[0];
    case cudaDevAttrMaxGridDimX:
      return properties.maxGridSize[0];
    case cudaDevAttrMaxGridDimY:
      return properties.maxGridSize[1];
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return properties.maxThreadsPerMultiProcessor;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return properties.maxBlocksPerMultiProcessor;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return static_cast<int>(properties.sharedMemPerBlock);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return static_cast<int>(properties.sharedMemPerBlockOptin);
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return static_cast<int>(properties.sharedMemPerMultiprocessor);
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return static_cast<int>(properties.reservedSharedMemPerBlock);
    case cudaDevAttrMaxRegistersPerBlock:
      return properties.regsPerBlock;
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return properties.regsPerMultiprocessor;
    case cudaDevAttrL2CacheSize:
      return properties.l2CacheSize;
    case cudaDevAttrGlobalMemoryBusWidth:
      return properties.memoryBusWidth;
    case cudaDevAttrMemoryClockRate:
      return 1000000;  // kHz
    case cudaDevAttrClockRate:
      return 1000000;  // kHz
    case cudaDevAttrAsyncEngineCount:
      return properties.asyncEngineCount;
    case cudaDevAttrMemoryPoolsSupported:
      return properties.memoryPoolsSupported;
    default:
      return std::nullopt;
  }
}

}  // namespace
}  // namespace tokenmill::emulation

using namespace tokenmill::emulation;  // the definitions below are the C functions of cuda_runtime_api.h

cudaError_t cudaGetDeviceCount(int* count) {
  return api("cudaGetDeviceCount", InCapture::kAllowed, [&](Call& call) {
    *count = state().settings.num_devices;
    return *count > 0 ? cudaSuccess : call.fail(cudaErrorNoDevice, "the emulated machine has no device");
  });
}

cudaError_t cudaSetDevice(int device) {
  return api("cudaSetDevice", InCapture::kAllowed, [&](Call& call) {
    if (const cudaError_t error = check_device(call, device)) return error;
    set_current_device(device);
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return api("cudaGetDevice", InCapture::kAllowed, [&](Call&) {
    *device = current_device();
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return api("cudaGetDeviceProperties", InCapture::kAllowed, [&](Call& call) {
    if (const cudaError_t error = check_device(call, device)) return error;
    fill_properties(*properties, device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return api("cudaDeviceGetAttribute", InCapture::kAllowed, [&](Call& call) {
    if (const cudaError_t error = check_device(call, device)) return error;
    cudaDeviceProp properties;
    fill_properties(properties, device);
    const auto found = attribute_of(properties, attribute);
    if (!found) return call.fail(cudaErrorInvalidValue, "attribute {} is not emulated", static_cast<int>(attribute));
    *value = *found;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return api("cudaDeviceGetPCIBusId", InCapture::kAllowed, [&](Call& call) {
    if (const cudaError_t error = check_device(call, device)) return error;
    const std::string id = fmt::format("0000:{:02X}:00.0", device + 1);
    if (length <= static_cast<int>(id.size())) return call.fail(cudaErrorInvalidValue, "{} bytes are too few", length);
    std::memcpy(text, id.c_str(), id.size() + 1);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
  return api("cudaDeviceCanAccessPeer", InCapture::kAllowed, [&](Call& call) {
    if (const cudaError_t error = check_device(call, device)) return error;
    if (const cudaError_t error = check_device(call, peer)) return error;
    *can_access = device != peer;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
