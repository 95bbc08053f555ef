#pragma once
// The words of CUDA C++ in their emulated meaning. Included by kernels/device/cuda.h alone, after NVIDIA's headers:
// threadIdx and its kin are macros, so fields of CUDA structs with these names cannot be used behind this line.
#include <cstdint>

#include "kernels/emulation/block/device_atomics.h"
#include "kernels/emulation/block/device_half.h"
#include "kernels/emulation/block/device_math.h"
#include "kernels/emulation/block/device_sync.h"
#include "kernels/emulation/block/shared_memory.h"
#include "kernels/emulation/block/thread.h"

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __managed__
#undef __launch_bounds__
#undef __grid_constant__
#undef __forceinline__
#undef __noinline__  // stays undefined: the standard library writes __attribute__((__noinline__))
#undef __align__
#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline
#define __align__(n) alignas(n)
// Must not compile in emulation: each thread would get a copy of its own, or none would be filled.
#undef __shared__
#define __shared__ write_GPU_SHARED_instead_of___shared__
#define __constant__ pass_constants_as_kernel_parameters
#define __managed__ managed_memory_is_not_emulated

#define threadIdx (::tokenmill::emulation::current_thread->index)
#define blockIdx (::tokenmill::emulation::current_thread->block->block)
#define blockDim (::tokenmill::emulation::current_thread->block->block_size)
#define gridDim (::tokenmill::emulation::current_thread->block->grid_size)
#undef warpSize
#define warpSize 32

#define GPU_SHARED(Type, name) \
  static char name##_key;      \
  auto& name = *static_cast<Type*>(::tokenmill::emulation::shared_array(&name##_key, sizeof(Type), alignof(Type)))
#define GPU_DYN_SHARED(name) unsigned char* const name = ::tokenmill::emulation::dynamic_shared()
