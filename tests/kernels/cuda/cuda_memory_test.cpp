#include "kernels/cuda/cuda_memory.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/cuda/cuda_stream.h"
#include "tests/support/cuda_device.h"

using namespace tokenmill;

TEST_CASE("device memory is zeroed, aligned and counted; freed memory can be had again") {
  const auto device = test::cuda_device();
  if (!device) return;
  cuda::CudaMemory memory(*device);
  cuda::CudaStream stream(*device);
  CHECK(memory.total_bytes() > 0);
  CHECK(memory.free_bytes() <= memory.total_bytes());
  {
    const Buffer small = memory.allocate(100), large = memory.allocate(5 << 20);
    Buffer host = memory.allocate_host(5 << 20);
    CHECK(reinterpret_cast<uintptr_t>(small.data()) % 64 == 0);
    CHECK(small.device() == *device);
    CHECK(host.device() == Device{});
    std::fill(host.bytes().begin(), host.bytes().end(), std::byte{1});
    stream.copy(host.data(), large.data(), large.num_bytes());
    stream.copy(host.data(), small.data(), small.num_bytes());
    stream.synchronize();
    CHECK(std::all_of(host.bytes().begin(), host.bytes().end(), [](std::byte value) { return value == std::byte{0}; }));
    CHECK(memory.used_bytes() == 100 + (5 << 20));
  }
  CHECK(memory.used_bytes() == 0);
  CHECK(memory.peak_bytes() == 100 + (5 << 20));
  CHECK(memory.allocate(0).data() == nullptr);
  CHECK(memory.allocate_host(0).data() == nullptr);
}

TEST_CASE("more memory than there is is refused with the bytes, and the device goes on") {
  const auto device = test::cuda_device();
  if (!device) return;
  cuda::CudaMemory memory(*device);
  const int64_t much = memory.total_bytes() + (int64_t{1} << 30);
  const std::string text = to_string(*device) + ": cannot allocate " + std::to_string(much) + " bytes of memory; ";
  CHECK_THROWS_WITH_AS(memory.allocate(much), doctest::Contains(text.c_str()), Error);
  CHECK(memory.used_bytes() == 0);
  CHECK(memory.allocate(16).num_bytes() == 16);
}
