// Sums of the parts that ranks exchange.
#include <doctest/doctest.h>

#include "tests/support/backends.h"
#include "tests/support/reference.h"
#include "tests/support/tolerance.h"

using namespace tokenmill;
using test::HostTensor;

namespace {

constexpr int64_t kSizes[] = {1, 7, 31, 64, 100, 2049};

/// The first `rows` rows of each of `num_parts` parts that have `held` rows.
reference::Values rows_of_parts(const HostTensor& parts, int64_t num_parts, int64_t held, int64_t rows) {
  reference::Values values;
  for (int64_t p = 0; p < num_parts; ++p) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < parts.view().cols(); ++i) values.push_back(parts.get(p * held + r, i));
    }
  }
  return values;
}

}  // namespace

TEST_CASE("sum_parts adds in ascending order in f32, the bias last, and rounds once") {
  constexpr int64_t kRows = 4, kHeld = 6, kParts = 3;
  for (Ops* ops : test::backends()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const DType part_dtype : {DType::kF32, dtype}) {
        for (const int64_t n : kSizes) {
          for (const bool has_bias : {false, true}) {
            CAPTURE(n);
            test::Random random(10);
            HostTensor parts(part_dtype, {kParts, kHeld, n}), out(dtype, {kRows, n}, 2), bias(DType::kBF16, {n});
            parts.fill_random(random);
            bias.fill_random(random);
            ops->sum_parts(out, parts, has_bias ? bias.view() : TensorView());
            ops->stream().synchronize();
            for (int64_t r = 0; r < kRows; ++r) {
              for (int64_t i = 0; i < n; ++i) {  // exact: the order is part of the contract
                auto sum = static_cast<float>(parts.get(r, i));
                for (int64_t p = 1; p < kParts; ++p) sum += static_cast<float>(parts.get(p * kHeld + r, i));
                if (has_bias) sum += static_cast<float>(bias.get(0, i));
                CHECK_EQ(out.get(r, i), dtype == DType::kF32 ? sum : to_float(to_bf16(sum)));
              }
            }
            auto want = reference::sum_parts(rows_of_parts(parts, kParts, kHeld, kRows), kParts);
            const auto biases = bias.values();
            for (size_t i = 0; has_bias && i < want.size(); ++i) want[i] += biases[i % biases.size()];
            CHECK_EQ(test::differences(out.values(), want, test::tolerance(dtype)), "");
            CHECK(out.gaps_intact());
          }
        }
      }
    }
  }
}

TEST_CASE("add_parts_rms_norm has the bits of sum_parts and add_rms_norm, on any number of threads") {
  constexpr int64_t kRows = 5, kHeld = 7;
  for (const std::string& isa : test::cpu_isas()) {
    for (const int threads : {1, 2, 3}) {
      const auto ops = test::cpu_backend(isa, threads);
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const DType part_dtype : {DType::kF32, dtype}) {
          for (const int64_t n : kSizes) {
            for (const int64_t num_parts : {1, 2, 5}) {
              CAPTURE(n);
              CAPTURE(num_parts);
              test::Random random(11);
              HostTensor parts(part_dtype, {num_parts, kHeld, n}), hidden(dtype, {kRows, n}, 3), weight(dtype, {n}),
                  bias(DType::kF32, {n}), normed(dtype, {kRows, n}, 1);
              HostTensor want_hidden(dtype, {kRows, n}), block(dtype, {kRows, n}), want_normed(dtype, {kRows, n});
              parts.fill_random(random);
              hidden.fill_random(random);
              weight.fill_random(random);
              bias.fill_random(random);
              for (int64_t r = 0; r < kRows; ++r) {
                for (int64_t i = 0; i < n; ++i) want_hidden.set(r, i, hidden.get(r, i));
              }
              const TensorView added = num_parts == 2 ? TensorView() : bias.view();
              auto sum = reference::sum_parts(rows_of_parts(parts, num_parts, kHeld, kRows), num_parts);
              const auto before = hidden.values(), biases = bias.values();
              for (size_t i = 0; i < sum.size(); ++i) {
                sum[i] += before[i] + (added.defined() ? biases[i % biases.size()] : 0);
              }
              ops->sum_parts(block, parts, added);
              ops->add_rms_norm(want_normed, want_hidden, block, weight, 1e-5f);
              ops->add_parts_rms_norm(normed, hidden, parts, added, weight, 1e-5f);
              ops->stream().synchronize();
              CHECK(hidden.bytes() == want_hidden.bytes());
              CHECK(normed.bytes() == want_normed.bytes());
              CHECK(hidden.gaps_intact());
              CHECK(normed.gaps_intact());
              const test::Tolerance close = test::tolerance(dtype);
              CHECK_EQ(test::differences(hidden.values(), sum, {3 * close.absolute, close.relative}), "");
              CHECK_EQ(test::differences(normed.values(),
                                         reference::rms_norm(hidden.values(), weight.values(), n, 1e-5), close),
                       "");
            }
          }
        }
      }
    }
  }
}

TEST_CASE("operations on parts say what does not fit, and do nothing for no tokens") {
  Ops& ops = *test::backends().front();
  HostTensor out(DType::kBF16, {3, 8}), parts(DType::kF32, {2, 2, 8}), good(DType::kF32, {2, 3, 8}),
      bias(DType::kF32, {7}), weight(DType::kBF16, {8}), none(DType::kBF16, {0, 8});
  CHECK_THROWS_WITH_AS(
      ops.sum_parts(out, parts),
      "sum_parts: parts float32 [2, 2, 8] does not match out bfloat16 [3, 8]; expected float32 or bfloat16 [parts, at "
      "least 3, 8]",
      Error);
  CHECK_THROWS_WITH_AS(ops.sum_parts(out, good, bias),
                       "sum_parts: bias float32 [7] does not match out bfloat16 [3, 8]; expected float32 [8]", Error);
  CHECK_THROWS_WITH_AS(ops.add_parts_rms_norm(out, out, parts, {}, weight, 1e-5f),
                       doctest::Contains("parts float32 [2, 2, 8] does not match hidden bfloat16 [3, 8]"), Error);
  CHECK_THROWS_WITH_AS(ops.add_parts_rms_norm(out, out, good, {}, bias, 1e-5f),
                       doctest::Contains("weight float32 [7] does not match hidden bfloat16 [3, 8]"), Error);
  CHECK_NOTHROW(ops.sum_parts(none, good));
  CHECK_NOTHROW(ops.add_parts_rms_norm(none, none, good, {}, weight, 1e-5f));
}
