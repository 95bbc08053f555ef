#include "kernels/emulation/grid.h"
#include "kernels/emulation/runtime/scheduler.h"

namespace tokenmill::emulation {
namespace {

constexpr size_t kDefaultDynamicSmem = size_t{48} << 10;

size_t dynamic_smem_limit(const void* function) {
  const auto found = state().dynamic_smem_limits.find(function);
  return found == state().dynamic_smem_limits.end() ? kDefaultDynamicSmem : found->second;
}

cudaError_t check_shape(Call& call, const LaunchShape& shape, const Stream& stream) {
  const dim3 &grid = shape.grid, &block = shape.block;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64) {
    return call.fail(cudaErrorInvalidConfiguration,
                     "{}: a block of {} x {} x {} threads; 1 to 1024 are allowed, z up to 64", shape.name, block.x,
                     block.y, block.z);
  }
  if (grid.x == 0 || grid.x > 0x7FFFFFFFu || grid.y == 0 || grid.y > 65535 || grid.z == 0 || grid.z > 65535) {
    return call.fail(cudaErrorInvalidConfiguration,
                     "{}: a grid of {} x {} x {} blocks; at least 1, y and z up to 65535", shape.name, grid.x, grid.y,
                     grid.z);
  }
  if (const size_t limit = dynamic_smem_limit(shape.function); shape.dynamic_smem > limit) {
    return call.fail(cudaErrorInvalidValue,
                     "{}: {} bytes of dynamic shared memory; {} are allowed (cudaFuncSetAttribute raises the limit)",
                     shape.name, shape.dynamic_smem, limit);
  }
  if (stream.device != current_device()) {
    return call.fail(cudaErrorInvalidResourceHandle, "{}: the stream is of device {}, the current device is {}",
                     shape.name, stream.device, current_device());
  }
  return cudaSuccess;
}

/// Order of the next grid's warps and blocks, in run_grid's terms.
uint64_t next_grid_seed() {
  Lock lock(state().mutex);
  return state().settings.seed <= 1 ? state().settings.seed : state().random();
}

}  // namespace

cudaError_t enqueue_kernel(cudaStream_t handle, const LaunchShape& shape, std::function<void()> thread_body) {
  return api("kernel launch", InCapture::kAllowed, [&](Call& call) {
    Stream* stream = call.stream(handle);
    if (stream == nullptr) return call.error();
    if (const cudaError_t error = check_shape(call, shape, *stream)) return error;
    return append(call, *stream, NodeKind::kKernel, shape.name, [shape, body = std::move(thread_body)]() -> Status {
      auto failure = run_grid(shape, body, next_grid_seed());
      if (failure) return {cudaErrorLaunchFailure, std::move(*failure)};
      return {};
    });
  });
}

cudaError_t enqueue(cudaStream_t handle, const char* name, Operation operation) {
  return api(name, InCapture::kAllowed, [&](Call& call) {
    Stream* stream = call.stream(handle);
    if (stream == nullptr) return call.error();
    return append(call, *stream, NodeKind::kLibrary, name, std::move(operation));
  });
}

}  // namespace tokenmill::emulation
