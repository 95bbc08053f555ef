#pragma once
// Instructions that CUDA C++ has no word for. Inline assembly stands in these headers alone, and each wrapper is
// written twice: as PTX, and as a call of the emulator. Every fragment layout is pinned by
// tests/kernels/emulation/*_test.cpp.
//
// A wrapper exists in every compilation pass; a kernel that uses one of a later architecture guards its own body with
// GPU_HAS_SM90A (kernels/device/cuda.h).
#include "kernels/cuda/ptx_async_copy.h"
#include "kernels/cuda/ptx_barrier.h"
#include "kernels/cuda/ptx_bulk_copy.h"
#include "kernels/cuda/ptx_math.h"
#include "kernels/cuda/ptx_mbarrier.h"
#include "kernels/cuda/ptx_mma.h"
#include "kernels/cuda/ptx_wgmma.h"
