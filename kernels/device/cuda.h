#pragma once
// The only header through which our code sees CUDA, cuBLAS and NCCL. nvcc compiles device code behind it; with
// TOKENMILL_CUDA_EMULATED the words of CUDA C++ mean the host emulator (kernels/emulation/README.md has the rules for
// kernels that must run in both). In emulation threadIdx, blockDim, ... are macros from here on: struct fields of these
// names are out of reach.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

// cuBLAS and NCCL are C interfaces: nothing of them is emulated here.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <nccl.h>

/// GPU_HAS_SM90A: this pass can have Hopper's own instructions (wgmma, bulk and tensor copies). A kernel that uses them
/// exists in every pass, or the host could not launch it, and guards its body:  #if GPU_HAS_SM90A ... #else __trap();
/// #endif
#ifdef TOKENMILL_CUDA_EMULATED
#include "kernels/emulation/block/device.h"

// Loops are unrolled by nvcc alone: no result depends on it.
#define GPU_UNROLL
#define GPU_NO_UNROLL
#define GPU_HAS_SM90A 1
#else
/// Shared memory of a block: GPU_SHARED(Type, name) is one object (a struct, or `using A = float[32];`),
/// GPU_DYN_SHARED(name) the bytes that the launch asked for, 1024-byte aligned.
#define GPU_SHARED(Type, name) __shared__ Type name
#define GPU_DYN_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]
#define GPU_UNROLL _Pragma("unroll")
#define GPU_NO_UNROLL _Pragma("unroll 1")
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define GPU_HAS_SM90A 1
#else
#define GPU_HAS_SM90A 0
#endif
#endif
