#include "kernels/cuda/cuda_device.h"

#include <doctest/doctest.h>

#include <thread>

#include "kernels/core/error.h"
#include "kernels/cuda/cuda_memory.h"
#include "tests/support/emulated_device.h"

using namespace tokenmill;

namespace {

int current_device() {
  int device = -1;
  cudaGetDevice(&device);
  return device;
}

}  // namespace

TEST_CASE("ranks of a node take the visible devices in turn") {
  const test::EmulatedDevice emulated({.num_devices = 3});
  CHECK(cuda::num_visible_devices() == 3);
  for (const auto& [local_rank, index] : {std::pair{0, 0}, {1, 1}, {2, 2}, {3, 0}, {7, 1}}) {
    CHECK(cuda::select_device(local_rank) == Device{DeviceKind::kCuda, index});
    CHECK(current_device() == index);
  }
}

TEST_CASE("no device, or one that is too old, is refused with what is needed") {
  const test::EmulatedDevice emulated({.num_devices = 0});
  CHECK(cuda::num_visible_devices() == 0);
  CHECK_THROWS_WITH_AS(cuda::select_device(0), doctest::Contains("no CUDA device is visible (CUDA_VISIBLE_DEVICES"),
                       Error);
  CHECK(cudaGetLastError() == cudaSuccess);
  emulation::configure({.num_devices = 1, .compute_capability = 75});
  CHECK_THROWS_WITH_AS(cuda::select_device(0), "cuda:0 has compute capability 7.5; at least 8.0 is needed", Error);
}

TEST_CASE("a scope makes its device current for its thread and puts the former one back") {
  const test::EmulatedDevice emulated({.num_devices = 2});
  {
    const cuda::DeviceScope scope({DeviceKind::kCuda, 1});
    CHECK(current_device() == 1);
    int elsewhere = -1;
    std::thread([&] { elsewhere = current_device(); }).join();
    CHECK(elsewhere == 0);
  }
  CHECK(current_device() == 0);
  CHECK_THROWS_AS(cuda::DeviceScope({DeviceKind::kCpu, 0}), Error);
}

TEST_CASE("memory belongs to the device it was made for, whichever is current") {
  const test::EmulatedDevice emulated({.num_devices = 2, .memory_bytes = 1 << 20});
  cuda::CudaMemory memory({DeviceKind::kCuda, 1});
  const Buffer buffer = memory.allocate(1 << 19);
  CHECK(current_device() == 0);
  CHECK(memory.free_bytes() == 1 << 19);
  CHECK(cuda::device_facts({DeviceKind::kCuda, 0}).free_bytes > 1 << 19);
  cudaPointerAttributes attributes;
  REQUIRE(cudaPointerGetAttributes(&attributes, buffer.data()) == cudaSuccess);
  CHECK(attributes.device == 1);
}
