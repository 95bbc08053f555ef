#pragma once
#include <cstddef>

namespace tokenmill::emulation {

constexpr size_t kReservedSmem = 1024;  // of every block, beside what the kernel asks for
constexpr int kThreadsPerMultiprocessor = 2048;
constexpr int kBlocksPerMultiprocessor = 32;

/// Bytes of shared memory, by compute capability.
struct Limits {
  size_t smem_per_block;  ///< the most that cudaFuncSetAttribute allows
  size_t smem_per_multiprocessor;
};
Limits limits();

}  // namespace tokenmill::emulation
