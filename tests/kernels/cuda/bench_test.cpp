#include "kernels/bench/bench.h"

#include <doctest/doctest.h>

#include "tests/support/cuda_device.h"

using namespace tokenmill;

TEST_CASE("operations of a device are checked, timed and held against its own limits") {
  const auto device = test::cuda_device();
  if (!device) return;
  const OpsOptions options{.attention_part_bytes = 1 << 20};
  const auto ops = make_ops(*device, options);
  // Limits by hand: a probe of full size would take an emulated device minutes (device_speeds_test has a small one).
  const bench::Limits limits{.f32_gflops_team = 1, .bf16_gflops_team = 2, .read_gbps = 4, .copy_gbps = 4};
  const bench::Result linear = bench::bench_linear(*ops, limits, {5, 64, 32, DType::kBF16}, 0);
  CHECK(linear.repeats >= 3);
  CHECK(linear.gflops == doctest::Approx(2.0 * 5 * 64 * 32 / linear.ms * 1e-6));
  CHECK(linear.compute_share == doctest::Approx(linear.gflops / 2));
  for (const int64_t tokens : {1, 9}) {
    const bench::Result attention = bench::bench_attention(*ops, limits, {2, tokens, 40, 4, 2, 64, DType::kBF16}, 0);
    CHECK_EQ(attention.family, tokens == 1 ? "attention_decode" : "attention_prefill");
    CHECK(attention.max_error < 1.0 / 64);
  }
  const bench::Result shared = bench::bench_attention(*ops, limits, {3, 1, 1100, 4, 2, 64, DType::kBF16, 1024}, 0);
  CHECK_EQ(shared.shape, "3 x 1 of 1100 tokens (1024 common), heads 4/2, dim 64");
  CHECK(shared.max_error < 1.0 / 64);
  CHECK(shared.gbps == doctest::Approx((3 * 1100 - 2 * 1024) * 2 * 64 * 2 * 2 / shared.ms * 1e-6));
  for (const bool with_norm : {false, true}) {
    CHECK(bench::bench_parts(*ops, limits, {3, 5, 72, DType::kBF16, with_norm}, 0).ms > 0);
  }
  for (const auto kind :
       {bench::SamplingKind::kTopP, bench::SamplingKind::kPenalties, bench::SamplingKind::kLogprobs}) {
    const bench::Result sampling = bench::bench_sampling(*ops, limits, {3, 1500, kind}, 0);
    CHECK(sampling.max_error < 1e-5);
    CHECK(sampling.memory_share == doctest::Approx(sampling.gbps / 4));
  }
}
