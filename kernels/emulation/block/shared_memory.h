#pragma once
// Shared memory as kernels reach it: GPU_SHARED and GPU_DYN_SHARED in kernels/device/cuda.h.
#include <cstddef>
#include <cstdint>

#include "kernels/emulation/block/site.h"

namespace tokenmill::emulation {

/// The block's array for a declaration that `key` names; 0xFF everywhere when the first thread gets it.
void* shared_array(const void* key, size_t size, size_t alignment, Site site = Site::here());

/// The block's dynamic shared memory, 1024-byte aligned.
unsigned char* dynamic_shared();

/// Offset in the block's shared window: what 32-bit shared addresses and matrix descriptors are made of.
uint32_t shared_address(const void* p, Site site = Site::here());

}  // namespace tokenmill::emulation
