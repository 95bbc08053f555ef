// Launches through streams: limits of a launch, failures that stick, counters, attributes of devices and kernels.
#include "kernels/cuda/launch.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/support/emulated_device.h"

using namespace tokenmill;
using test::DeviceArray;
using test::DeviceStream;
using test::EmulatedDevice;

namespace {

__global__ void add(int* values, int amount) { values[blockIdx.x * blockDim.x + threadIdx.x] += amount; }

__global__ void trap_at(int index) {
  if (static_cast<int>(threadIdx.x) == index) __trap();
}

__global__ void use_dynamic(int* out) {
  GPU_DYN_SHARED(bytes);
  bytes[0] = 1;
  *out = bytes[0];
}

cudaError_t launch_add(dim3 grid, dim3 block, cudaStream_t stream, int* values) {
  return gpu::launch(add, {.grid = grid, .block = block, .stream = stream, .name = "add"}, values, 1);
}

}  // namespace

TEST_CASE("a launch keeps its arguments and runs when the host waits, again at every replay") {
  const EmulatedDevice device;
  const DeviceStream stream;
  const DeviceArray<int> values(std::vector<int>(64, 0));
  int amount = 2;
  REQUIRE(gpu::launch(add, {.grid = 2, .block = 32, .stream = stream, .name = "add"}, values.data(), amount) ==
          cudaSuccess);
  amount = 7;
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(values.read() == std::vector<int>(64, 2));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  REQUIRE(launch_add(2, 32, stream, values.data()) == cudaSuccess);
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  REQUIRE(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
  CHECK(emulation::counters().launches == 1);
  for (int i = 0; i < 3; ++i) REQUIRE(cudaGraphLaunch(exec, stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(values.read() == std::vector<int>(64, 5));
  CHECK(emulation::counters().launches == 4);
  cudaGraphDestroy(graph);
  cudaGraphExecDestroy(exec);
}

TEST_CASE("a grid or block outside the limits is refused, and nothing sticks") {
  const EmulatedDevice device;
  const DeviceArray<int> values(std::vector<int>(1, 0));
  const auto wrong = cudaErrorInvalidConfiguration;
  CHECK(launch_add(0, 32, nullptr, values.data()) == wrong);
  CHECK(launch_add(1, 0, nullptr, values.data()) == wrong);
  CHECK(launch_add(1, 1025, nullptr, values.data()) == wrong);
  CHECK(launch_add(1, dim3(1, 1, 65), nullptr, values.data()) == wrong);
  CHECK(launch_add(dim3(1, 65536, 1), 1, nullptr, values.data()) == wrong);
  CHECK(emulation::last_failure() ==
        "kernel launch: add: a grid of 1 x 65536 x 1 blocks; at least 1, y and z up to 65535");
  CHECK(cudaGetLastError() == wrong);
  CHECK(launch_add(1, 1, nullptr, values.data()) == cudaSuccess);
  CHECK(values.read()[0] == 1);
}

TEST_CASE("more than 48 KiB of dynamic shared memory needs the kernel's attribute") {
  const EmulatedDevice device;
  const DeviceArray<int> out(1);
  const auto launch = [&](size_t smem) {
    return gpu::launch(use_dynamic, {.grid = 1, .block = 1, .smem = smem, .name = "use_dynamic"}, out.data());
  };
  CHECK(launch(48 << 10) == cudaSuccess);
  CHECK(launch((48 << 10) + 1) == cudaErrorInvalidValue);
  CHECK(emulation::last_failure() ==
        "kernel launch: use_dynamic: 49153 bytes of dynamic shared memory; 49152 are allowed (cudaFuncSetAttribute "
        "raises the limit)");
  const auto* kernel = reinterpret_cast<const void*>(use_dynamic);
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  CHECK(cudaFuncSetAttribute(kernel, attribute, 232449) == cudaErrorInvalidValue);
  REQUIRE(cudaFuncSetAttribute(kernel, attribute, 65536) == cudaSuccess);
  CHECK(launch(65536) == cudaSuccess);
  CHECK(launch(65537) == cudaErrorInvalidValue);
  cudaFuncAttributes attributes;
  REQUIRE(cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess);
  CHECK(attributes.maxDynamicSharedSizeBytes == 65536);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  emulation::configure({.compute_capability = 80});
  CHECK(cudaFuncSetAttribute(kernel, attribute, 166913) == cudaErrorInvalidValue);
  REQUIRE(cudaFuncSetAttribute(kernel, attribute, 48 << 10) == cudaSuccess);
}

TEST_CASE("a failed kernel shows at the next wait, names its place and sticks") {
  const EmulatedDevice device;
  const DeviceStream stream;
  const DeviceArray<int> values(std::vector<int>(32, 0));
  REQUIRE(gpu::launch(trap_at, {.grid = 1, .block = 32, .stream = stream, .name = "trap_at"}, 5) == cudaSuccess);
  REQUIRE(launch_add(1, 32, stream, values.data()) == cudaSuccess);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
  CHECK(emulation::last_failure().find("trap_at") != std::string::npos);
  CHECK(emulation::last_failure().find("launch_test.cpp") != std::string::npos);
  CHECK(launch_add(1, 32, stream, values.data()) == cudaErrorLaunchFailure);
  CHECK(cudaMemset(values.data(), 0, 4) == cudaErrorLaunchFailure);
  CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
  CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
  emulation::reset();
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(values.read() == std::vector<int>(32, 0));  // what followed the failure was skipped
}

TEST_CASE("a launch on another device's stream is refused") {
  const EmulatedDevice device({.num_devices = 2});
  const DeviceStream stream;
  const DeviceArray<int> values(std::vector<int>(1, 0));
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  CHECK(launch_add(1, 1, stream, values.data()) == cudaErrorInvalidResourceHandle);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  CHECK(launch_add(1, 1, stream, values.data()) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}

TEST_CASE("the device is what the settings say") {
  const EmulatedDevice device(
      {.num_devices = 3, .memory_bytes = 12345678, .compute_capability = 80, .num_multiprocessors = 7});
  int count = 0, value = 0;
  REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 3);
  cudaDeviceProp properties;
  REQUIRE(cudaGetDeviceProperties(&properties, 2) == cudaSuccess);
  CHECK(properties.major == 8);
  CHECK(properties.minor == 0);
  CHECK(properties.multiProcessorCount == 7);
  CHECK(properties.totalGlobalMem == 12345678);
  CHECK(std::strcmp(properties.name, "tokenmill emulated sm_80") == 0);
  REQUIRE(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess);
  CHECK(value == 7);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrCooperativeLaunch, 0) == cudaErrorInvalidValue);
  CHECK(cudaGetDeviceProperties(&properties, 3) == cudaErrorInvalidDevice);
  emulation::configure({.num_devices = 0});
  CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  CHECK(count == 0);
}

TEST_CASE("occupancy counts threads and shared memory") {
  const EmulatedDevice device;
  int blocks = 0;
  const auto* kernel = reinterpret_cast<const void*>(add);
  REQUIRE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, 0) == cudaSuccess);
  CHECK(blocks == 8);
  REQUIRE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 33, 0) == cudaSuccess);
  CHECK(blocks == 32);
  REQUIRE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 128, 100 << 10) == cudaSuccess);
  CHECK(blocks == 2);
}

TEST_CASE("codes have their names") {
  CHECK(std::strcmp(cudaGetErrorName(cudaErrorLaunchFailure), "cudaErrorLaunchFailure") == 0);
  CHECK(std::strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);
  CHECK(std::strcmp(cudaGetErrorName(static_cast<cudaError_t>(12345)), "unrecognized error code") == 0);
}

#ifdef __SANITIZE_ADDRESS__
TEST_CASE("AddressSanitizer sees a kernel leave its allocation, or use one that was freed") {
  const EmulatedDevice device;
  // By how many elements past a block's array of 30 the kernel goes; the child of a fork dies of it.
  const auto survives = [](int num_elements, bool freed) {
    const pid_t child = fork();
    if (child == 0) {
      std::freopen("/dev/null", "w", stderr);
      int* values = nullptr;
      cudaMalloc(&values, num_elements * sizeof(int));
      if (freed) cudaFree(values);
      launch_add(1, 30, nullptr, values);
      _exit(cudaDeviceSynchronize() == cudaSuccess ? 0 : 2);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  };
  CHECK(survives(30, false));
  CHECK_FALSE(survives(29, false));
  CHECK_FALSE(survives(30, true));
}
#endif
