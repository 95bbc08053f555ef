#pragma once
// Runs the blocks of one kernel launch on the calling thread. The runtime half of the emulator calls it; kernels do
// not.
#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tokenmill::emulation {

/// What a launch fixes before any thread of it runs.
struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t dynamic_smem = 0;         // bytes
  const char* name = "?";          // for error texts; a literal: a graph keeps it
  const void* function = nullptr;  // the kernel's address: what cudaFuncSetAttribute was told about
};

/// Runs every block of the grid, one after the other; `thread_body` is called once per CUDA thread, on a fiber of its
/// own. The seed chooses the order: 0 forward, 1 reverse, anything else random. Within an order a warp runs until all
/// its lanes wait, so fast warps get as far ahead of slow ones as the kernel's barriers allow. Returns the error text
/// of the first block that fails, with kernel, block, thread, file and line; later blocks do not run. Concurrent calls
/// from several threads are fine; a call from inside a kernel is not.
std::optional<std::string> run_grid(const LaunchShape& shape, const std::function<void()>& thread_body, uint64_t seed);

}  // namespace tokenmill::emulation
