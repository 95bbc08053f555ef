#pragma once
// The one way to launch a kernel, in both builds; never <<<>>>.
#include <type_traits>
#include <utility>

#include "kernels/device/cuda.h"
#ifdef TOKENMILL_CUDA_EMULATED
#include <tuple>

#include "kernels/emulation/runtime.h"
#endif

namespace tokenmill::gpu {

struct Launch {
  dim3 grid;
  dim3 block;
  size_t smem = 0;  // bytes of dynamic shared memory; more than 48 KiB needs cudaFuncSetAttribute first
  cudaStream_t stream = nullptr;
  const char* name = "?";  // a literal: names the kernel in the emulator's errors
};

/// Enqueues the kernel. Arguments become the kernel's parameter types now and are copied by value, as a captured graph
/// keeps them: what changes between replays must lie in device memory. launch(rms_norm_kernel<T>, {.grid = rows, .block
/// = 256, .stream = stream, .name = "rms_norm"}, out, x, weight);
template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), const Launch& launch, Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "the kernel takes another number of arguments");
  static_assert((std::is_trivially_copyable_v<std::remove_reference_t<Parameters>> && ...),
                "kernel parameters are copied as bytes");
  static_assert(!(std::is_reference_v<Parameters> || ...), "a kernel takes its parameters by value");
#ifdef TOKENMILL_CUDA_EMULATED
  std::tuple<std::remove_cv_t<Parameters>...> values(static_cast<Parameters>(std::forward<Arguments>(arguments))...);
  return emulation::enqueue_kernel(launch.stream,
                                   {.grid = launch.grid,
                                    .block = launch.block,
                                    .dynamic_smem = launch.smem,
                                    .name = launch.name,
                                    .function = reinterpret_cast<const void*>(kernel)},
                                   [kernel, values] { std::apply(kernel, values); });
#else
  cudaLaunchConfig_t config{};
  config.gridDim = launch.grid;
  config.blockDim = launch.block;
  config.dynamicSmemBytes = launch.smem;
  config.stream = launch.stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...);
#endif
}

}  // namespace tokenmill::gpu
