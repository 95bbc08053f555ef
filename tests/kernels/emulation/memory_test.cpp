// Device and pinned memory of the emulated runtime, copies and fills.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <numeric>

#include "tests/support/emulated_device.h"

using namespace tokenmill;
using test::DeviceArray;
using test::DeviceStream;
using test::EmulatedDevice;

namespace {

size_t free_bytes() {
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  return free;
}

std::vector<int> numbers(int count) {
  std::vector<int> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 1);
  return values;
}

}  // namespace

TEST_CASE("fresh device memory reads as NaN and as -1") {
  const EmulatedDevice device;
  const DeviceArray<float> floats(3);
  for (const float value : floats.read()) CHECK(std::isnan(value));
  CHECK(DeviceArray<int>(2).read() == std::vector<int>{-1, -1});
  float* pinned = nullptr;
  REQUIRE(cudaMallocHost(&pinned, sizeof(float)) == cudaSuccess);
  CHECK(std::isnan(*pinned));
  CHECK(cudaFreeHost(pinned) == cudaSuccess);
}

TEST_CASE("memory runs out at the settable size and comes back when it is freed") {
  const EmulatedDevice device({.memory_bytes = 1 << 20});
  const size_t before = free_bytes();
  REQUIRE(before <= size_t{1} << 20);
  void *first = nullptr, *second = nullptr;
  REQUIRE(cudaMalloc(&first, before) == cudaSuccess);
  CHECK(free_bytes() == 0);
  CHECK(cudaMalloc(&second, 1) == cudaErrorMemoryAllocation);
  CHECK(second == nullptr);
  CHECK(emulation::last_failure() == "cudaMalloc: 1 bytes asked, 0 of 1048576 are free");
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaSuccess);  // not sticky
  REQUIRE(cudaFree(first) == cudaSuccess);
  CHECK(free_bytes() == before);
  CHECK(emulation::counters().device_allocations == 1);
}

TEST_CASE("freeing what was not allocated is refused") {
  const EmulatedDevice device;
  int on_host = 0;
  CHECK(cudaFree(nullptr) == cudaSuccess);
  CHECK(cudaFree(&on_host) == cudaErrorInvalidValue);
  CHECK(cudaFreeHost(&on_host) == cudaErrorInvalidValue);
  const DeviceArray<int> array(4);
  CHECK(cudaFree(array.data() + 1) == cudaErrorInvalidValue);
  CHECK(cudaFreeHost(array.data()) == cudaErrorInvalidValue);
}

TEST_CASE("memory freed in stream order lives until its turn") {
  const EmulatedDevice device;
  const DeviceStream stream;
  const size_t before = free_bytes();
  void* memory = nullptr;
  REQUIRE(cudaMallocAsync(&memory, 256, stream) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(memory, 0, 256, stream) == cudaSuccess);
  REQUIRE(cudaFreeAsync(memory, stream) == cudaSuccess);
  CHECK(free_bytes() == before - 256);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(free_bytes() == before);
}

TEST_CASE("a copy in the wrong direction is refused") {
  const EmulatedDevice device;
  const DeviceArray<int> array(numbers(4));
  int host[4] = {};
  CHECK(cudaMemcpy(host, array.data(), sizeof host, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(emulation::last_failure() == "cudaMemcpy: kind 1 does not fit a copy from device memory to host memory");
  CHECK(cudaMemcpy(host, array.data(), sizeof host, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(array.data(), host, sizeof host, cudaMemcpyHostToHost) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(array.data(), host, sizeof host, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(array.read() == numbers(4));
  CHECK(cudaMemcpy(host, array.data(), sizeof host, cudaMemcpyDefault) == cudaSuccess);
  CHECK(host[3] == 4);
}

TEST_CASE("a copy or fill past the end of an allocation is refused") {
  const EmulatedDevice device;
  const DeviceArray<char> array(10);
  char host[16] = {};
  CHECK(cudaMemcpy(array.data(), host, 11, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(host, array.data() + 8, 3, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(emulation::last_failure() ==
        "cudaMemcpy: the source covers 3 bytes from offset 8 of an allocation of 10 bytes");
  CHECK(cudaMemset(array.data() + 4, 0, 7) == cudaErrorInvalidValue);
  CHECK(cudaMemset(host, 0, 1) == cudaErrorInvalidValue);
  CHECK(cudaMemset(array.data() + 4, 0, 6) == cudaSuccess);
  CHECK(array.read()[3] == -1);
  CHECK(array.read()[9] == 0);
}

TEST_CASE("rows of a pitched copy land at their pitch") {
  const EmulatedDevice device;
  const DeviceStream stream;
  const DeviceArray<int> array(numbers(6));
  int* host = nullptr;
  REQUIRE(cudaMallocHost(&host, 4 * sizeof(int)) == cudaSuccess);
  CHECK(cudaMemcpy2DAsync(host, 8, array.data() + 1, 12, 8, 2, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  CHECK(cudaMemcpy2DAsync(host, 4, array.data(), 12, 8, 2, cudaMemcpyDeviceToHost, stream) ==
        cudaErrorInvalidPitchValue);
  CHECK(cudaMemcpy2DAsync(host, 8, array.data() + 2, 12, 8, 2, cudaMemcpyDeviceToHost, stream) ==
        cudaErrorInvalidValue);  // one element past the end
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(std::vector<int>(host, host + 4) == std::vector<int>{2, 3, 5, 6});
  cudaFreeHost(host);
}

TEST_CASE("a pinned copy has not happened before the host waits; a pageable one from the device has") {
  const EmulatedDevice device;
  const DeviceStream stream;
  const DeviceArray<int> array(numbers(1));
  int* pinned = nullptr;
  REQUIRE(cudaMallocHost(&pinned, sizeof(int)) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(pinned, array.data(), sizeof(int), cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  CHECK(*pinned == -1);
  CHECK(emulation::counters().pageable_copies == 0);
  int pageable = 0;
  REQUIRE(cudaMemcpyAsync(&pageable, array.data(), sizeof(int), cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  CHECK(pageable == 1);
  CHECK(*pinned == 1);  // earlier on the same stream
  CHECK(emulation::counters().pageable_copies == 1);
  cudaFreeHost(pinned);
}

TEST_CASE("a pageable source may change as soon as the call returns, a pinned one may not") {
  const EmulatedDevice device;
  const DeviceStream stream;
  const DeviceArray<int> array(2);
  int pageable = 5;
  int* pinned = nullptr;
  REQUIRE(cudaMallocHost(&pinned, sizeof(int)) == cudaSuccess);
  *pinned = 5;
  REQUIRE(cudaMemcpyAsync(array.data(), &pageable, sizeof(int), cudaMemcpyHostToDevice, stream) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(array.data() + 1, pinned, sizeof(int), cudaMemcpyHostToDevice, stream) == cudaSuccess);
  pageable = *pinned = 6;
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(array.read() == std::vector<int>{5, 6});
  cudaFreeHost(pinned);
}

TEST_CASE("registered memory is pinned until it is unregistered") {
  const EmulatedDevice device;
  const DeviceStream stream;
  const DeviceArray<int> array(numbers(2));
  std::vector<int> host(2, 0);
  CHECK(cudaHostUnregister(host.data()) == cudaErrorHostMemoryNotRegistered);
  REQUIRE(cudaHostRegister(host.data(), 8, cudaHostRegisterDefault) == cudaSuccess);
  CHECK(cudaHostRegister(host.data() + 1, 4, cudaHostRegisterDefault) == cudaErrorHostMemoryAlreadyRegistered);
  cudaPointerAttributes attributes;
  REQUIRE(cudaPointerGetAttributes(&attributes, host.data() + 1) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeHost);
  REQUIRE(cudaMemcpyAsync(host.data(), array.data(), 8, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  CHECK(emulation::counters().pageable_copies == 0);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(host == numbers(2));
  CHECK(cudaHostUnregister(host.data()) == cudaSuccess);
}

TEST_CASE("every device has its own memory") {
  const EmulatedDevice device({.num_devices = 2, .memory_bytes = 1 << 20});
  const size_t before = free_bytes();
  void* memory = nullptr;
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  REQUIRE(cudaMalloc(&memory, 1 << 19) == cudaSuccess);
  CHECK(free_bytes() == size_t{1} << 19);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  CHECK(free_bytes() == before);
  CHECK(cudaFree(memory) == cudaSuccess);  // from any device
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
}

TEST_CASE("host code that touches device memory ends in a segmentation fault; kernels and copies may") {
  const EmulatedDevice device;
  const DeviceArray<int> array(numbers(4));
  const auto status_of_child = [&](bool touch) {
    const pid_t child = fork();
    if (child == 0) {
      std::signal(SIGSEGV, SIG_DFL);
      if (touch) *static_cast<volatile int*>(array.data()) = 1;
      _exit(array.read() == numbers(4) ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  };
  CHECK(status_of_child(false) == 0);
  const int status = status_of_child(true);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSEGV);
}

TEST_CASE("freed device memory is given out again, pieces never overlap") {
  const EmulatedDevice device;
  void *first = nullptr, *second = nullptr, *third = nullptr, *large = nullptr;
  cudaMalloc(&first, 1000);
  cudaMalloc(&second, 1000);
  cudaMalloc(&third, 1000);
  CHECK(static_cast<char*>(second) >= static_cast<char*>(first) + 1000);
  CHECK(static_cast<char*>(third) >= static_cast<char*>(second) + 1000);
  for (void* pointer : {first, second, third}) CHECK(reinterpret_cast<uintptr_t>(pointer) % 256 == 0);
  cudaFree(second);
  cudaMalloc(&large, 5000);  // does not fit where second was
  CHECK(static_cast<char*>(large) >= static_cast<char*>(third) + 1000);
  void* again = nullptr;
  cudaMalloc(&again, 900);
  CHECK(again == second);
  for (void* pointer : {first, third, large, again}) CHECK(cudaFree(pointer) == cudaSuccess);
}
