#include "kernels/cuda/pinned_staging.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/cuda_stream.h"
#include "tests/support/cuda_device.h"

using namespace tokenmill;

TEST_CASE("bytes of any length reach the device, though their source changes at once") {
  const auto device = test::cuda_device();
  if (!device) return;
  cuda::CudaMemory memory(*device);
  cuda::CudaStream stream(*device);
  cuda::PinnedStaging staging(memory, stream, /*chunk_bytes=*/64);
  for (const int64_t size : {0, 1, 63, 64, 65, 128, 1000}) {
    CAPTURE(size);
    const Buffer target = memory.allocate(size + 1);
    Buffer read = memory.allocate_host(size + 1);
    std::vector<std::byte> source(static_cast<size_t>(size));
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i % 251 + 1);
    const auto expected = source;
    staging.upload(target.data(), source);
    std::fill(source.begin(), source.end(), std::byte{0});
    stream.copy(read.data(), target.data(), size + 1);
    stream.synchronize();
    CHECK(std::equal(expected.begin(), expected.end(), read.bytes().begin()));
    CHECK(read.bytes().back() == std::byte{0});  // nothing past the end
  }
}
