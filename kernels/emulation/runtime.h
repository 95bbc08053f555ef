#pragma once
#include <driver_types.h>

#include <functional>

#include "kernels/emulation/grid.h"

namespace tokenmill::emulation {

/// Puts a kernel launch on the stream; `thread_body` runs once per CUDA thread when its turn comes.
cudaError_t enqueue_kernel(cudaStream_t stream, LaunchShape shape, std::function<void()> thread_body);

}  // namespace tokenmill::emulation
