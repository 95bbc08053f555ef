// Device and pinned host memory. Both are filled with 0xFF (NaN in every float format, -1 in
// integers) when they are taken and when they are given back, so that reading what was never written shows.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernels/emulation/runtime/scheduler.h"

namespace tokenmill::emulation {
namespace {

/// Addresses of a device, many times its memory: fragments must not matter.
constexpr size_t kLeastArenaBytes = size_t{64} << 30;
constexpr int kFill = 0xFF;

/// What an allocation counts in memory sizes.
size_t counted(size_t num_bytes) { return (num_bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment; }

cudaError_t take_device_memory(Call& call, void** pointer, size_t num_bytes) {
  *pointer = nullptr;
  if (num_bytes == 0) return cudaSuccess;
  const int device = current_device();
  const size_t total = state().settings.memory_bytes;
  if (num_bytes > total || counted(num_bytes) > free_bytes(device)) {
    return call.fail(cudaErrorMemoryAllocation, "{} bytes asked, {} of {} are free", num_bytes, free_bytes(device),
                     total);
  }
  auto& arena = state().arenas[device];
  if (!arena) arena = std::make_unique<Arena>(std::max(kLeastArenaBytes, 4 * total));
  *pointer = arena->take(num_bytes);
  if (*pointer == nullptr) {
    return call.fail(cudaErrorMemoryAllocation, "no {} bytes of addresses are left", num_bytes);
  }
  const DeviceAccess access;
  std::memset(*pointer, kFill, num_bytes);
  state().used_bytes[device] += counted(num_bytes);
  ++state().counters.device_allocations;
  state().allocations[reinterpret_cast<uintptr_t>(*pointer)] = {num_bytes, MemoryKind::kDevice, device};
  return cudaSuccess;
}

/// The allocation that starts at pointer, or allocations.end().
std::map<uintptr_t, Allocation>::iterator starting_at(const void* pointer, MemoryKind kind) {
  auto& allocations = state().allocations;
  const auto found = allocations.find(reinterpret_cast<uintptr_t>(pointer));
  return found != allocations.end() && found->second.kind == kind ? found : allocations.end();
}

void give_back(std::map<uintptr_t, Allocation>::iterator found) {
  auto* pointer = reinterpret_cast<void*>(found->first);
  const Allocation allocation = found->second;
  state().allocations.erase(found);
  const DeviceAccess access;
  std::memset(pointer, kFill, allocation.num_bytes);
  if (allocation.kind == MemoryKind::kDevice) {
    state().used_bytes[allocation.device] -= counted(allocation.num_bytes);
    state().arenas[allocation.device]->give_back(pointer);
  } else {
    std::free(pointer);
  }
}

cudaError_t take_host_memory(const char* name, void** pointer, size_t num_bytes) {
  return api(name, InCapture::kUnsafe, [&](Call& call) {
    *pointer = nullptr;
    if (num_bytes == 0) return cudaSuccess;
    if (posix_memalign(pointer, 4096, num_bytes) != 0) {
      return call.fail(cudaErrorMemoryAllocation, "the host has no {} bytes", num_bytes);
    }
    std::memset(*pointer, kFill, num_bytes);
    ++state().counters.host_allocations;
    state().allocations[reinterpret_cast<uintptr_t>(*pointer)] = {num_bytes, MemoryKind::kPinned, current_device()};
    return cudaSuccess;
  });
}

}  // namespace

size_t free_bytes(int device) {
  const Settings& settings = state().settings;
  return settings.memory_bytes - std::min(settings.memory_bytes, settings.context_bytes + state().used_bytes[device]);
}

}  // namespace tokenmill::emulation

using namespace tokenmill::emulation;  // the definitions below are the C functions of cuda_runtime_api.h

cudaError_t cudaMalloc(void** pointer, size_t num_bytes) {
  return api("cudaMalloc", InCapture::kUnsafe,
             [&](Call& call) { return take_device_memory(call, pointer, num_bytes); });
}

cudaError_t cudaMallocAsync(void** pointer, size_t num_bytes, cudaStream_t handle) {
  return api("cudaMallocAsync", InCapture::kAllowed, [&](Call& call) {
    const Stream* stream = call.stream(handle);
    if (stream == nullptr) return call.error();
    if (stream->capture) return call.fail(cudaErrorNotSupported, "allocation nodes of graphs are not emulated");
    return take_device_memory(call, pointer, num_bytes);
  });
}

cudaError_t cudaFree(void* pointer) {
  return api("cudaFree", InCapture::kUnsafe, [&](Call& call) {
    if (pointer == nullptr) return cudaSuccess;
    auto found = starting_at(pointer, MemoryKind::kDevice);
    if (found == state().allocations.end()) {
      return call.fail(cudaErrorInvalidValue, "{} does not start a live device allocation", pointer);
    }
    drain_device(call.lock(), found->second.device);  // as on a device: freeing waits for its work
    give_back(found);
    return cudaSuccess;
  });
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t handle) {
  return api("cudaFreeAsync", InCapture::kAllowed, [&](Call& call) {
    Stream* stream = call.stream(handle);
    if (stream == nullptr) return call.error();
    if (stream->capture) return call.fail(cudaErrorNotSupported, "allocation nodes of graphs are not emulated");
    if (pointer == nullptr) return cudaSuccess;
    if (starting_at(pointer, MemoryKind::kDevice) == state().allocations.end()) {
      return call.fail(cudaErrorInvalidValue, "{} does not start a live device allocation", pointer);
    }
    return append(call, *stream, NodeKind::kHost, "cudaFreeAsync", [pointer] {
      Lock lock(state().mutex);
      const auto found = starting_at(pointer, MemoryKind::kDevice);
      if (found == state().allocations.end()) return Status{cudaErrorInvalidValue, "freed twice"};
      give_back(found);
      return Status{};
    });
  });
}

cudaError_t cudaMallocHost(void** pointer, size_t num_bytes) {
  return take_host_memory("cudaMallocHost", pointer, num_bytes);
}

cudaError_t cudaHostAlloc(void** pointer, size_t num_bytes, unsigned) {
  return take_host_memory("cudaHostAlloc", pointer, num_bytes);
}

cudaError_t cudaFreeHost(void* pointer) {
  return api("cudaFreeHost", InCapture::kUnsafe, [&](Call& call) {
    if (pointer == nullptr) return cudaSuccess;
    auto found = starting_at(pointer, MemoryKind::kPinned);
    if (found == state().allocations.end()) {
      return call.fail(cudaErrorInvalidValue, "{} does not start pinned memory of cudaMallocHost", pointer);
    }
    for (int device = 0; device < state().settings.num_devices; ++device) drain_device(call.lock(), device);
    give_back(found);
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void* pointer, size_t num_bytes, unsigned) {
  return api("cudaHostRegister", InCapture::kUnsafe, [&](Call& call) {
    if (pointer == nullptr || num_bytes == 0) return call.fail(cudaErrorInvalidValue, "{} bytes", num_bytes);
    if (find_allocation(pointer)) {
      return call.fail(cudaErrorHostMemoryAlreadyRegistered, "{} is pinned or device memory", pointer);
    }
    ++state().counters.host_allocations;
    state().allocations[reinterpret_cast<uintptr_t>(pointer)] = {num_bytes, MemoryKind::kRegistered, current_device()};
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* pointer) {
  return api("cudaHostUnregister", InCapture::kUnsafe, [&](Call& call) {
    const auto found = starting_at(pointer, MemoryKind::kRegistered);
    if (found == state().allocations.end()) {
      return call.fail(cudaErrorHostMemoryNotRegistered, "{} does not start registered memory", pointer);
    }
    state().allocations.erase(found);
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return api("cudaMemGetInfo", InCapture::kAllowed, [&](Call&) {
    *total_bytes = state().settings.memory_bytes;
    *free_bytes = tokenmill::emulation::free_bytes(current_device());
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return api("cudaPointerGetAttributes", InCapture::kAllowed, [&](Call&) {
    *attributes = {};
    attributes->device = -1;
    attributes->type = cudaMemoryTypeUnregistered;
    if (const auto found = find_allocation(pointer)) {
      const bool device = found->allocation.kind == MemoryKind::kDevice;
      attributes->type = device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
      attributes->device = found->allocation.device;
      attributes->devicePointer = const_cast<void*>(pointer);
      attributes->hostPointer = device ? nullptr : const_cast<void*>(pointer);
    }
    return cudaSuccess;
  });
}
