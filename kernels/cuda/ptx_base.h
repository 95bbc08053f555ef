#pragma once
// What the ptx headers share.
#include <cstdint>

#include "kernels/device/cuda.h"
#ifdef TOKENMILL_CUDA_EMULATED
#include "kernels/emulation/block/site.h"
#endif

namespace tokenmill::ptx {

#ifdef TOKENMILL_CUDA_EMULATED
using emulation::Site;
#else
/// A pointer into shared memory as the 32-bit address that instructions take.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
#endif

}  // namespace tokenmill::ptx
