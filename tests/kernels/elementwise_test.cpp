#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/backends.h"
#include "tests/support/reference.h"
#include "tests/support/tolerance.h"

using namespace tokenmill;
using test::HostTensor;

namespace {
constexpr int64_t kSizes[] = {1, 7, 31, 64, 100, 2049};
}

TEST_CASE("rms_norm matches the f64 reference") {
  for (Ops* ops : test::backends()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t n : kSizes) {
        CAPTURE(ops->describe());
        CAPTURE(to_string(dtype));
        CAPTURE(n);
        test::Random random(7);
        HostTensor x(dtype, {5, n}, 3), weight(dtype, {n}), out(dtype, {5, n}, 2);
        x.fill_random(random, -2, 2);
        weight.fill_random(random, 0.5, 2);
        ops->rms_norm(out, x, weight, 1e-5f);
        ops->stream().synchronize();
        const auto want = reference::rms_norm(x.values(), weight.values(), n, 1e-5);
        CHECK_EQ(test::differences(out.values(), want, test::tolerance(dtype)), "");
        CHECK(out.gaps_intact());
        ops->rms_norm(x, x, weight, 1e-5f);  // in place
        ops->stream().synchronize();
        CHECK(x.bytes() == out.bytes());
      }
    }
  }
}

TEST_CASE("add_rms_norm adds into hidden, then normalizes the rounded sum") {
  for (Ops* ops : test::backends()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t n : kSizes) {
        CAPTURE(n);
        test::Random random(8);
        HostTensor hidden(dtype, {3, n}, 1), block(dtype, {3, n}), weight(dtype, {n}), normed(dtype, {3, n});
        hidden.fill_random(random);
        block.fill_random(random);
        weight.fill_random(random);
        auto sum = hidden.values();
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += block.values()[i];
        ops->add_rms_norm(normed, hidden, block, weight, 1e-6f);
        ops->stream().synchronize();
        CHECK_EQ(test::differences(hidden.values(), sum, test::tolerance(dtype)), "");
        const auto want = reference::rms_norm(hidden.values(), weight.values(), n, 1e-6);
        CHECK_EQ(test::differences(normed.values(), want, test::tolerance(dtype)), "");
      }
    }
  }
}

TEST_CASE("gated_activation matches the f64 reference, large gates included") {
  for (Ops* ops : test::backends()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t n : kSizes) {
        CAPTURE(n);
        test::Random random(9);
        HostTensor gate_up(dtype, {4, 2 * n}, 6), out(dtype, {4, n}, 1);
        gate_up.fill_random(random, -8, 8);
        gate_up.set(0, 0, 200);
        gate_up.set(1, 0, -200);
        gate_up.set(2, 0, 0);
        ops->gated_activation(out, gate_up, Activation::kSilu);
        ops->stream().synchronize();
        CHECK_EQ(test::differences(out.values(), reference::gated_silu(gate_up.values(), n), test::tolerance(dtype)),
                 "");
        CHECK(out.gaps_intact());
      }
    }
  }
}

TEST_CASE("embed reads ids, slots of sampled tokens, and zeros outside the table") {
  for (Ops* ops : test::backends()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      test::Random random(12);
      HostTensor w(dtype, {10, 33}), out(dtype, {6, 33}, 3), ids(DType::kI32, {6}), last(DType::kI32, {2});
      w.fill_random(random);
      last.set(0, 0, 4);
      last.set(0, 1, 9);
      const int32_t values[] = {0, 9, 10, -1, -2, -3};
      const int64_t want[] = {0, 9, -1, 4, 9, -1};
      for (int64_t i = 0; i < 6; ++i) ids.set(0, i, values[i]);
      const test::TestEmbedding table(*ops, w);
      ops->embed(out, table.get(), ids, last);
      ops->stream().synchronize();
      for (int64_t t = 0; t < 6; ++t) {
        for (int64_t i = 0; i < 33; ++i) CHECK_EQ(out.get(t, i), want[t] < 0 ? 0.0 : w.get(want[t], i));
      }
      CHECK(out.gaps_intact());
    }
  }
}

TEST_CASE("shares of an embedding table add up to its bits, minus zeros and empty shares included") {
  for (Ops* ops : test::backends()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      constexpr int64_t kVocab = 10, kCols = 33, kTokens = kVocab + 1;
      test::Random random(14);
      HostTensor w(dtype, {kVocab, kCols}), whole(dtype, {kTokens, kCols}), sum(dtype, {kTokens, kCols}),
          shares(dtype, {3, kTokens, kCols}), ids(DType::kI32, {kTokens}), last(DType::kI32, {1});
      w.fill_random(random);
      for (int64_t i = 0; i < kVocab; ++i) w.set(i, i, -0.0);
      last.set(0, 0, 6);
      for (int64_t t = 0; t < kTokens; ++t) ids.set(0, t, t < kVocab ? static_cast<double>(t) : -1);
      const test::TestEmbedding all(*ops, w);
      ops->embed(whole, all.get(), ids, last);
      const int64_t borders[] = {0, 4, 4, 10};
      for (int64_t p = 0; p < 3; ++p) {
        const int64_t rows = borders[p + 1] - borders[p];
        HostTensor part(dtype, {rows, kCols});
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t i = 0; i < kCols; ++i) part.set(r, i, w.get(borders[p] + r, i));
        }
        const test::TestEmbedding share(*ops, part);
        auto* const storage = static_cast<std::byte*>(shares.view().data());
        const TensorView out(storage + p * kTokens * kCols * dtype_size(dtype), dtype, {kTokens, kCols});
        ops->embed(out, share.get(), ids, last, borders[p]);
        ops->stream().synchronize();
        for (int64_t i = 0; i < kCols; ++i) {
          CHECK_EQ(HostTensor::get_at(out, kVocab, i), p == 2 ? w.get(6, i) : 0.0);  // the token sampled last
        }
      }
      ops->sum_parts(sum, shares);
      ops->stream().synchronize();
      CHECK(sum.bytes() == whole.bytes());
    }
  }
}

TEST_CASE("add leaves in hidden what add_rms_norm leaves there") {
  for (Ops* ops : test::backends()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t n : kSizes) {
        CAPTURE(n);
        test::Random random(15);
        HostTensor hidden(dtype, {5, n}, 2), block(dtype, {5, n}, 1), weight(dtype, {n}), normed(dtype, {5, n});
        hidden.fill_random(random);
        block.fill_random(random);
        weight.fill_random(random);
        HostTensor copy(dtype, {5, n}, 1);
        for (int64_t r = 0; r < 5; ++r) {
          for (int64_t i = 0; i < n; ++i) copy.set(r, i, hidden.get(r, i));
        }
        auto sum = hidden.values();
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += block.values()[i];
        ops->add(hidden, block);
        ops->add_rms_norm(normed, copy, block, weight, 1e-6f);
        ops->stream().synchronize();
        CHECK_EQ(test::differences(hidden.values(), sum, test::tolerance(dtype)), "");
        CHECK(hidden.bytes() == copy.bytes());
        CHECK(hidden.gaps_intact());
      }
    }
  }
}

TEST_CASE("gather_rows copies the rows asked for and refuses others") {
  for (Ops* ops : test::backends()) {
    test::Random random(13);
    HostTensor x(DType::kBF16, {5, 9}, 2), out(DType::kBF16, {3, 9}, 1), rows(DType::kI32, {3});
    x.fill_random(random);
    const int64_t wanted[] = {4, 0, 4};
    for (int64_t i = 0; i < 3; ++i) rows.set(0, i, static_cast<double>(wanted[i]));
    ops->gather_rows(out, x, rows);
    ops->stream().synchronize();
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t i = 0; i < 9; ++i) CHECK_EQ(out.get(r, i), x.get(wanted[r], i));
    }
    rows.set(0, 1, 5);
    ops->gather_rows(out, x, rows);
    CHECK_THROWS_WITH_AS(ops->stream().synchronize(), doctest::Contains("row 5 of "), Error);
  }
}

TEST_CASE("rope_angles rounds the product to f32 and holds cosines, then sines") {
  for (Ops* ops : test::backends()) {
    HostTensor out(DType::kF32, {4, 10}, 2), positions(DType::kI64, {4}), freq(DType::kF32, {5});
    const int64_t where[] = {0, 1, 1000, 131071};
    for (int64_t i = 0; i < 4; ++i) positions.set(0, i, static_cast<double>(where[i]));
    for (int64_t i = 0; i < 5; ++i) freq.set(0, i, std::pow(10000.0, -static_cast<double>(i) / 5));
    ops->rope_angles(out, positions, freq, 1.25f);
    ops->stream().synchronize();
    for (int64_t t = 0; t < 4; ++t) {
      for (int64_t i = 0; i < 5; ++i) {
        const float angle = static_cast<float>(where[t]) * static_cast<float>(freq.get(0, i));
        CHECK(out.get(t, i) == doctest::Approx(std::cos(double{angle}) * 1.25).epsilon(1e-6));
        CHECK(out.get(t, 5 + i) == doctest::Approx(std::sin(double{angle}) * 1.25).epsilon(1e-6));
      }
    }
    CHECK(out.gaps_intact());
  }
}

TEST_CASE("elementwise operations name both shapes when they disagree, and do nothing for no tokens") {
  Ops& ops = *test::backends().front();
  HostTensor x(DType::kF32, {2, 9}), weight(DType::kF32, {8}), narrow(DType::kBF16, {2, 9}), none(DType::kF32, {0, 9});
  HostTensor right(DType::kF32, {9});
  CHECK_THROWS_WITH_AS(ops.rms_norm(x, x, weight, 1e-6f),
                       "rms_norm: weight float32 [8] does not match x float32 [2, 9]; expected float32 [9]", Error);
  CHECK_THROWS_WITH_AS(ops.rms_norm(narrow, x, right, 1e-6f),
                       "rms_norm: out bfloat16 [2, 9] does not match x float32 [2, 9]; expected float32 [2, 9]", Error);
  CHECK_THROWS_WITH_AS(
      ops.gated_activation(x, x, Activation::kSilu),
      doctest::Contains("gate_up float32 [2, 9] does not match out float32 [2, 9]; expected float32 [2, 18]"), Error);
  CHECK_THROWS_WITH_AS(ops.add(x, narrow),
                       "add: block_out bfloat16 [2, 9] does not match hidden float32 [2, 9]; expected float32 [2, 9]",
                       Error);
  CHECK_NOTHROW(ops.rms_norm(none, none, right, 1e-6f));
  CHECK_NOTHROW(ops.add(none, none));
}
