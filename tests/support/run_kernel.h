#pragma once
// Runs a kernel to its end: test::run_kernel(kernel, {.grid = 2, .block = 64}, seed, out, n). Emulated: on the core
// alone, without streams. On a GPU: launch and synchronise; the seed means nothing there.
#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device/cuda.h"
#ifdef TOKENMILL_CUDA_EMULATED
#include <tuple>
#include <type_traits>

#include "kernels/emulation/grid.h"
#else
#include "kernels/cuda/launch.h"
#endif

namespace tokenmill::test {

/// Forward, reverse and random orders.
constexpr uint64_t kSeeds[] = {0, 1, 2, 3, 4, 5};

/// Whether tests of kernels for this capability (90: Hopper's own instructions) have to be skipped here; says why.
inline bool lacks_capability([[maybe_unused]] int capability) {
#ifdef TOKENMILL_CUDA_EMULATED
  return false;
#else
  int device = 0, major = 0, minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
    std::puts("skipped: needs a GPU, has none");
    return true;
  }
  const int present = 10 * major + minor;
  // Hopper's own instructions exist on 9.0 alone.
  const bool lacks = capability == 90 ? present != 90 : present < capability;
  if (lacks) std::printf("skipped: needs compute capability %d, has %d\n", capability, present);
  return lacks;
#endif
}

struct Shape {
  dim3 grid = 1;
  dim3 block = 32;
  size_t smem = 0;
  const char* name = "test_kernel";
};

/// Memory that host and kernels reach through one pointer.
template <typename T>
class Shared {
 public:
  explicit Shared(size_t size) : size_(size) {
#ifdef TOKENMILL_CUDA_EMULATED
    // Aligned like cudaMalloc; sanitizers see its bounds.
    data_ = static_cast<T*>(::operator new(size * sizeof(T), std::align_val_t(256)));
#else
    void* memory = nullptr;
    if (cudaMallocManaged(&memory, size * sizeof(T)) != cudaSuccess) throw std::bad_alloc();
    data_ = static_cast<T*>(memory);
#endif
    std::uninitialized_value_construct_n(data_, size);
  }
  ~Shared() {
#ifdef TOKENMILL_CUDA_EMULATED
    ::operator delete(data_, std::align_val_t(256));
#else
    cudaFree(data_);
#endif
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  T* data() { return data_; }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }

 private:
  T* data_;
  size_t size_;
};

/// "" or the error text.
template <typename... Parameters, typename... Arguments>
std::string run_kernel(void (*kernel)(Parameters...), const Shape& shape, [[maybe_unused]] uint64_t seed,
                       Arguments... arguments) {
#ifdef TOKENMILL_CUDA_EMULATED
  const std::tuple<std::remove_cv_t<Parameters>...> values(static_cast<Parameters>(arguments)...);
  const auto error = emulation::run_grid(
      {.grid = shape.grid, .block = shape.block, .dynamic_smem = shape.smem, .name = shape.name},
      [kernel, values] { std::apply(kernel, values); }, seed);
  return error.value_or("");
#else
  cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(shape.smem));
  cudaError_t error = gpu::launch(
      kernel, {.grid = shape.grid, .block = shape.block, .smem = shape.smem, .name = shape.name}, arguments...);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
#endif
}

/// "" when the error text contains `part`, else the error text, so that a failing check prints it.
inline std::string unless_found(const std::string& part, const std::string& error) {
  return error.find(part) != std::string::npos ? "" : "not found in: " + error;
}

}  // namespace tokenmill::test
