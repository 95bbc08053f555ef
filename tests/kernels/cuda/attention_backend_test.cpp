#include "kernels/cuda/attention_backend.h"

#include <doctest/doctest.h>

#include "kernels/core/error.h"
#include "kernels/ops.h"
#include "tests/support/cuda_device.h"

using namespace tokenmill;
using namespace tokenmill::cuda;

namespace {

constexpr int64_t kLarge = 227 << 10, kMiddle = 163 << 10, kSmall = 99 << 10;  // sm_90, sm_80, sm_86

AttentionBackend choice(AttentionBackend asked, DType dtype, int64_t k_dim, int64_t v_dim, int64_t smem = kLarge,
                        int capability = 90) {
  return choose_attention(asked, {capability, smem, dtype, k_dim, v_dim});
}

}  // namespace

TEST_CASE(
    "paged_wgmma and paged_mma are chosen for 16-bit heads that they have and that fit, reference for all others") {
  const auto asked = AttentionBackend::kAuto;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t dim : {64, 96, 128, 256}) {
      const bool has_wgmma = dim == 64 || dim == 128;
      CHECK(choice(asked, dtype, dim, dim) ==
            (has_wgmma ? AttentionBackend::kPagedWgmma : AttentionBackend::kPagedMma));
      CHECK(choice(asked, dtype, dim, dim, kLarge, 100) == AttentionBackend::kPagedMma);
      CHECK(choice(asked, dtype, dim, dim, kMiddle, 80) == AttentionBackend::kPagedMma);
    }
    CHECK(choice(asked, dtype, 128, 128, kSmall, 86) == AttentionBackend::kPagedMma);
    CHECK(choice(asked, dtype, 256, 256, kSmall, 86) == AttentionBackend::kReference);
    CHECK(choice(asked, dtype, 80, 80) == AttentionBackend::kReference);
    CHECK(choice(asked, dtype, 128, 64) == AttentionBackend::kReference);
  }
  CHECK(choice(asked, DType::kF32, 64, 64) == AttentionBackend::kReference);
  CHECK(choice(AttentionBackend::kPagedMma, DType::kBF16, 64, 64) == AttentionBackend::kPagedMma);
  CHECK(choice(AttentionBackend::kReference, DType::kBF16, 64, 64) == AttentionBackend::kReference);
}

TEST_CASE("a backend that does not take the model, or does not exist, is refused by name") {
  CHECK_THROWS_WITH_AS(choice(AttentionBackend::kPagedMma, DType::kF32, 64, 64),
                       doctest::Contains("this model has float32"), Error);
  CHECK_THROWS_WITH_AS(choice(AttentionBackend::kPagedMma, DType::kBF16, 256, 256, kSmall, 86),
                       doctest::Contains("sizes of 64, 96, 128 on this device (sm_86"), Error);
  CHECK_THROWS_WITH_AS(choice(AttentionBackend::kPagedWgmma, DType::kBF16, 96, 96),
                       doctest::Contains("sizes of 64, 128 on this device (sm_90"), Error);
  CHECK_THROWS_WITH_AS(choice(AttentionBackend::kPagedWgmma, DType::kBF16, 64, 64, kMiddle, 80),
                       doctest::Contains("paged_wgmma is for sm_90; this device is sm_80"), Error);
  CHECK_THROWS_WITH_AS(parse_attention_backend("flash"),
                       doctest::Contains("choose auto, reference, paged_mma or paged_wgmma"), Error);
  OpsOptions options;
  options.attention_backend = "paged_mma";
  CHECK_THROWS_WITH_AS(make_ops({}, options), doctest::Contains("is for --device cuda"), Error);
}

TEST_CASE("a device says which attention it has, and refuses pools that a forced backend does not take") {
  const auto device = test::cuda_device();
  if (!device) return;
  CHECK(make_ops(*device, {})->describe().find("paged_mma (bfloat16, float16; heads of 64") != std::string::npos);
  OpsOptions options;
  options.attention_backend = "reference";
  const auto reference = make_ops(*device, options);
  CHECK(reference->describe().ends_with("attention reference"));
  CHECK(reference->numerics() != make_ops(*device, {})->numerics());
  options.attention_backend = "paged_mma";
  const auto forced = make_ops(*device, options);
  const KvSpec spec{.num_layers = 1, .num_kv_heads = 1, .k_dim = 64, .v_dim = 64, .dtype = DType::kF32};
  CHECK_THROWS_WITH_AS(forced->make_kv_pool(spec, 0, {}), doctest::Contains("choose auto or reference"), Error);
}
