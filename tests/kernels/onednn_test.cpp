// The oneDNN wrapper. Its row-invariant family needs AVX-512; what does not depend on that (the layout arithmetic,
// shards, buckets, padding) is tested on every CPU, in f32, with whatever implementation oneDNN has for it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/onednn_linear.h"
#include "kernels/cpu/thread_team.h"
#include "tests/support/backends.h"
#include "tests/support/reference.h"
#include "tests/support/tolerance.h"

using namespace tokenmill;
using test::HostTensor;

TEST_CASE("the offsets of oneDNN's layout are a permutation, and weights written through them multiply right") {
  for (const auto& [columns, k] : {std::pair<int64_t, int64_t>{1, 1}, {17, 5}, {64, 64}, {100, 33}, {192, 300}}) {
    CAPTURE(columns);
    CAPTURE(k);
    cpu::OnednnMatmul product(DType::kF32, columns, k, "");
    std::vector<bool> used(static_cast<size_t>(product.packed_bytes()) / 4, false);
    for (const int64_t a : product.k_offsets()) {
      for (const int64_t b : product.column_offsets()) {
        REQUIRE(static_cast<size_t>(a + b) < used.size());
        CHECK_FALSE(used[static_cast<size_t>(a + b)]);
        used[static_cast<size_t>(a + b)] = true;
      }
    }
    test::Random random(71);
    HostTensor x(DType::kF32, {7, k}), w(DType::kF32, {columns, k}), out(DType::kF32, {7, columns}, 3);
    x.fill_random(random);
    w.fill_random(random);
    const Buffer packed = test::backends().front()->memory().allocate(product.packed_bytes());
    for (int64_t n = 0; n < columns; ++n) {
      for (int64_t i = 0; i < k; ++i) {
        static_cast<float*>(packed.data())[product.k_offsets()[static_cast<size_t>(i)] +
                                           product.column_offsets()[static_cast<size_t>(n)]] =
            static_cast<float>(w.get(n, i));
      }
    }
    cpu::Scratch scratch;
    product.run(7, x.view().data(), k, static_cast<const std::byte*>(packed.data()), out.view().as<float>(),
                out.view().row_stride(), scratch);
    CHECK_EQ(test::differences(out.values(), reference::linear(x.values(), w.values(), k, {}, {}),
                               test::tolerance(DType::kF32)),
             "");
    CHECK(out.gaps_intact());
  }
}

TEST_CASE("an implementation outside the required family is refused by name") {
  cpu::OnednnMatmul product(DType::kF32, 16, 16, "no such family");
  const Buffer packed = test::backends().front()->memory().allocate(product.packed_bytes());
  std::vector<float> a(16), out(16);
  cpu::Scratch scratch;
  CHECK_THROWS_WITH_AS(
      product.run(1, a.data(), 16, static_cast<const std::byte*>(packed.data()), out.data(), 16, scratch),
      doctest::Contains("oneDNN would use "), Error);
}

TEST_CASE("row buckets hold the rows, grow by at most an eighth from 64 on, and are few") {
  std::vector<int64_t> seen;
  for (int64_t rows = 1; rows <= 2048; ++rows) {
    const int64_t bucket = cpu::onednn_row_bucket(rows);
    CHECK(bucket >= rows);
    if (rows >= 64) CHECK(bucket * 8 <= rows * 9 + 64);
    if (rows <= 16) CHECK_EQ(bucket, rows);
    CHECK_EQ(cpu::onednn_row_bucket(bucket), bucket);
    if (seen.empty() || seen.back() != bucket) seen.push_back(bucket);
  }
  CHECK(std::is_sorted(seen.begin(), seen.end()));
  CHECK(seen.size() < 80);
}

TEST_CASE("a linear on oneDNN matches the f64 reference over shards, buckets, bias and residual") {
  for (const int threads : {1, 2, 3}) {
    for (const auto& [rows, out_features, k] :
         {std::tuple<int64_t, int64_t, int64_t>{1, 5, 3}, {17, 130, 40}, {33, 64, 65}, {1030, 70, 9}}) {
      CAPTURE(threads);
      CAPTURE(rows);
      test::Random random(72);
      HostTensor x(DType::kF32, {rows, k}, 2), w(DType::kF32, {out_features, k}), bias(DType::kF32, {out_features}),
          out(DType::kF32, {rows, out_features}, 1);
      x.fill_random(random);
      w.fill_random(random);
      bias.fill_random(random);
      out.fill_random(random);
      const auto want = reference::linear(x.values(), w.values(), k, bias.values(), out.values());
      const auto plain = reference::linear(x.values(), w.values(), k, {}, {});
      cpu::ThreadTeam team(threads);
      std::vector<cpu::Scratch> scratch(static_cast<size_t>(threads));
      cpu::Scratch shared;
      cpu::OnednnProducts products("");
      LinearSpec spec = test::plain_spec(out_features, k, DType::kF32);
      const Buffer storage =
          test::backends().front()->memory().allocate(cpu::onednn_linear_bytes(spec, products, threads));
      std::fill(storage.bytes().begin(), storage.bytes().end(), std::byte{0xff});  // padding must be written too
      // What this CPU's product does to the bits is another test's matter.
      for (int64_t columns = 1; columns <= out_features; ++columns) products.mark_verified(DType::kF32, columns, k);
      const auto linear = cpu::make_onednn_linear(spec, storage.bytes(), products, cpu::Isa::kAvx2, threads);
      test::push(*linear, 0, w.bytes());
      linear->finish();
      cpu::LinearContext context{team, scratch, shared};
      linear->multiply(out, x, {.bias = bias, .residual = out}, context, {});
      CHECK_EQ(test::differences(out.values(), want, test::tolerance(DType::kF32)), "");
      CHECK(out.gaps_intact());
      linear->multiply(out, x, {}, context, {});
      CHECK_EQ(test::differences(out.values(), plain, test::tolerance(DType::kF32)), "");
      CHECK(out.gaps_intact());

      // The storage is all there is: another linear over a copy of it computes the same, and writes nothing into it.
      const Buffer copy = test::backends().front()->memory().allocate(storage.num_bytes());
      std::memcpy(copy.data(), storage.data(), static_cast<size_t>(storage.num_bytes()));
      cpu::OnednnProducts own_products("");
      for (int64_t columns = 1; columns <= out_features; ++columns) own_products.mark_verified(DType::kF32, columns, k);
      const auto adopted = cpu::make_onednn_linear(spec, copy.bytes(), own_products, cpu::Isa::kAvx2, threads);
      adopted->adopt();
      HostTensor again(DType::kF32, {rows, out_features}, 1);
      adopted->multiply(again, x, {}, context, {});
      CHECK(again.values() == out.values());
      CHECK_EQ(std::memcmp(copy.data(), storage.data(), static_cast<size_t>(storage.num_bytes())), 0);
    }
  }
}

TEST_CASE("finishing or adopting a linear fails exactly when a row's bits depend on the rows beside it") {
  constexpr int64_t kColumns = 96, kInputs = 301, kMostRows = 1024;
  test::Random random(73);
  HostTensor w(DType::kF32, {kColumns, kInputs}), row(DType::kF32, {1, kInputs});
  w.fill_random(random);
  row.fill_random(random);
  cpu::OnednnProducts products("");
  const LinearSpec spec = test::plain_spec(kColumns, kInputs, DType::kF32);
  const Buffer storage = test::backends().front()->memory().allocate(cpu::onednn_linear_bytes(spec, products, 1));
  const auto linear = cpu::make_onednn_linear(spec, storage.bytes(), products, cpu::Isa::kAvx2, 1);
  test::push(*linear, 0, w.bytes());
  const auto is_refused = [](auto&& call) {
    try {
      call();
    } catch (const Error& error) {
      CHECK(std::string(error.what()).find("other bits for a row") != std::string::npos);
      return true;
    }
    return false;
  };
  const bool refused = is_refused([&] { linear->finish(); });
  cpu::OnednnProducts other_products("");
  const auto adopted = cpu::make_onednn_linear(spec, storage.bytes(), other_products, cpu::Isa::kAvx2, 1);
  CHECK_EQ(is_refused([&] { adopted->adopt(); }), refused);

  bool differs = false;
  cpu::Scratch scratch;
  std::vector<float> x, alone;
  for (int64_t r = 0; r < kMostRows; ++r) x.insert(x.end(), row.view().as<float>(), row.view().as<float>() + kInputs);
  for (int64_t rows = 1; rows <= kMostRows; rows = rows < 160 ? rows + 1 : rows + 96) {
    std::vector<float> got(static_cast<size_t>(rows * kColumns));
    products.get(DType::kF32, kColumns, kInputs, 0)
        .run(rows, x.data(), kInputs, storage.bytes().data(), got.data(), kColumns, scratch);
    if (rows == 1) alone = got;
    for (int64_t r = 0; r < rows; ++r) {
      differs |= std::memcmp(alone.data(), got.data() + r * kColumns, kColumns * sizeof(float)) != 0;
    }
  }
  CHECK_EQ(refused, differs);
}
