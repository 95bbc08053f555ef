#pragma once
#include "kernels/device/cuda.h"

namespace tokenmill::detail {
/// Throws Error(kDevice): device, call, place, what the library says, and the name of its code.
[[noreturn]] void cuda_failed(cudaError_t code, const char* call, const char* file, int line);
[[noreturn]] void cublas_failed(cublasStatus_t code, const char* call, const char* file, int line);
[[noreturn]] void nccl_failed(ncclResult_t code, const char* call, const char* file, int line);
}  // namespace tokenmill::detail

namespace tokenmill {
/// Whether work runs only when its host waits for it: emulated devices can be told to. Ranks that wait for each other
/// elsewhere would then never start what the others wait for.
bool streams_are_lazy();
}  // namespace tokenmill

/// Round every call of CUDA, cuBLAS and NCCL: throws Error(kDevice) unless it succeeds.
#define TM_CUDA(call)                                                            \
  do {                                                                           \
    if (const cudaError_t tm_code = (call); tm_code != cudaSuccess) [[unlikely]] \
      ::tokenmill::detail::cuda_failed(tm_code, #call, __FILE__, __LINE__);      \
  } while (false)
#define TM_CUBLAS(call)                                                                       \
  do {                                                                                        \
    if (const cublasStatus_t tm_code = (call); tm_code != CUBLAS_STATUS_SUCCESS) [[unlikely]] \
      ::tokenmill::detail::cublas_failed(tm_code, #call, __FILE__, __LINE__);                 \
  } while (false)
#define TM_NCCL(call)                                                             \
  do {                                                                            \
    if (const ncclResult_t tm_code = (call); tm_code != ncclSuccess) [[unlikely]] \
      ::tokenmill::detail::nccl_failed(tm_code, #call, __FILE__, __LINE__);       \
  } while (false)
