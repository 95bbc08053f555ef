#include "kernels/cuda/device_speeds.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/cuda_device.h"

using namespace tokenmill;

TEST_CASE("facts and speeds of the device are there and agree with each other") {
  const auto device = test::cuda_device();
  if (!device) return;
  const cuda::DeviceFacts facts = cuda::device_facts(*device);
  CHECK_FALSE(facts.name.empty());
  CHECK(facts.pci_bus_id.find(':') != std::string::npos);
  CHECK(facts.compute_capability >= 80);
  CHECK(facts.num_multiprocessors > 0);
  CHECK(facts.free_bytes <= facts.total_bytes);
  CHECK(facts.smem_per_block_bytes >= 48 << 10);
  const cuda::DeviceSpeeds speeds =
      cuda::measure_speeds(*device, {.copy_bytes = 1 << 20, .matrix_size = 64, .repeats = 2});
  for (const double speed : {speeds.copy_gbps, speeds.upload_gbps, speeds.download_gbps, speeds.bf16_tflops,
                             speeds.f32_tflops}) {
    CHECK(std::isfinite(speed));
    CHECK(speed > 0);
  }
}
