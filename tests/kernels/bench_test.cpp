#include "kernels/bench/bench.h"

#include <doctest/doctest.h>

#include "tests/support/backends.h"

using namespace tokenmill;

TEST_CASE("limits and operations are measured, checked and related to each other") {
  for (const std::string& isa : test::cpu_isas()) {
    const auto ops = test::cpu_backend(isa, 2);
    const bench::Limits limits = bench::measure_limits(*ops, {.num_threads = 2, .cpu_isa = isa}, 0.001);
    CHECK(limits.f32_gflops_core > 0);
    CHECK(limits.f32_gflops_team > 0);
    CHECK(limits.bf16_gflops_team > 0);
    CHECK(limits.read_gbps > 0);
    CHECK(limits.copy_gbps > 0);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const bench::Result linear = bench::bench_linear(*ops, limits, {5, 70, 33, dtype}, 0);
      CHECK_EQ(linear.shape, "M 5, N 70, K 33");
      CHECK(linear.repeats >= 3);
      CHECK(linear.ms > 0);
      CHECK(linear.median_ms >= linear.ms);
      CHECK(linear.gflops == doctest::Approx(2.0 * 5 * 70 * 33 / linear.ms * 1e-6));
      CHECK(linear.compute_share > 0);
      for (const int64_t tokens : {1, 9}) {
        const bench::Result attention = bench::bench_attention(*ops, limits, {2, tokens, 40, 4, 2, 16, dtype}, 0);
        CHECK_EQ(attention.family, tokens == 1 ? "attention_decode" : "attention_prefill");
        CHECK(attention.gbps == doctest::Approx(2 * 40 * 2 * 16 * 2 * dtype_size(dtype) / attention.ms * 1e-6));
      }
    }
    for (const bool with_norm : {false, true}) {
      const bench::Result parts = bench::bench_parts(*ops, limits, {3, 5, 70, DType::kBF16, with_norm}, 0);
      CHECK_EQ(parts.shape, "3 parts of 5 x 70");
      CHECK(parts.gbps == doctest::Approx(5.0 * 70 * (3 * 4 + (with_norm ? 3 : 1) * 2) / parts.ms * 1e-6));
    }
    for (const auto kind :
         {bench::SamplingKind::kGreedy, bench::SamplingKind::kPenalties, bench::SamplingKind::kLogprobs}) {
      const bench::Result sampling = bench::bench_sampling(*ops, limits, {3, 1500, kind}, 0);
      CHECK_EQ(sampling.family, "sampling");
      CHECK(sampling.gbps == doctest::Approx(3.0 * 1500 * 4 / sampling.ms * 1e-6));
      CHECK(sampling.max_error < 1e-5);
    }
  }
}

TEST_CASE("the default shapes are SmolLM2's, on a GPU Llama's") {
  CHECK_EQ(bench::default_linear_shapes(DeviceKind::kCpu).size(), 2 * (4 * 6 + 5));
  CHECK(bench::default_attention_shapes(DeviceKind::kCpu).size() >= 8);
  CHECK_EQ(bench::default_linear_shapes(DeviceKind::kCuda).size(), 4 * 6);
  for (const auto& shape : bench::default_attention_shapes(DeviceKind::kCuda)) CHECK_EQ(shape.head_dim, 128);
  CHECK_EQ(bench::default_sampling_shapes().size(), 20);
  CHECK_EQ(bench::default_parts_shapes().size(), 24);
}
