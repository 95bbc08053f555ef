#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>

#include "tests/support/backends.h"
#include "tests/support/reference.h"
#include "tests/support/tolerance.h"

using namespace tokenmill;
using test::HostTensor;

namespace {

struct Case {
  int64_t rows, out, in;
};

std::vector<std::byte> run(Ops& ops, const test::TestLinear& linear, const HostTensor& x, int64_t row_begin,
                           int64_t rows, int64_t out_features, DType out_dtype) {
  HostTensor out(out_dtype, {rows, out_features});
  ops.linear(out, x.view().slice_rows(row_begin, rows), linear.get());
  ops.stream().synchronize();
  return out.bytes();
}

}  // namespace

TEST_CASE("linear matches the f64 reference at awkward sizes, with bias, residual and both output types") {
  const Case cases[] = {
      {1, 1, 1},       {1, 16, 31},   {2, 17, 64},   {3, 31, 1},    {5, 130, 57},
      {6, 96, 576},    {7, 33, 1024}, {13, 65, 300}, {31, 48, 129}, {200, 20, 70},
      {200, 24, 1101}, {9, 40, 1},    {1, 300, 256}, {19, 257, 320}};  // the last two are oneDNN's where it is used
  for (Ops* ops : test::backends()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Case& c : cases) {
        for (const bool extras : {false, true}) {
          const DType out_dtype = extras ? dtype : DType::kF32;
          CAPTURE(ops->describe());
          CAPTURE(to_string(dtype));
          CAPTURE(c.rows);
          CAPTURE(c.out);
          CAPTURE(c.in);
          CAPTURE(extras);
          test::Random random(static_cast<uint64_t>(c.rows * 1000 + c.in));
          HostTensor x(dtype, {c.rows, c.in}, 3), w(dtype, {c.out, c.in}), bias(dtype, {c.out});
          HostTensor out(out_dtype, {c.rows, c.out}, 5), residual(out_dtype, {c.rows, c.out}, 1);
          x.fill_random(random);
          w.fill_random(random);
          bias.fill_random(random);
          residual.fill_random(random);
          const test::TestLinear linear(*ops, w);
          LinearCall call;
          if (extras) call = {.bias = bias, .residual = residual};
          ops->linear(out, x, linear.get(), call);
          ops->stream().synchronize();
          const auto want =
              reference::linear(x.values(), w.values(), c.in, extras ? bias.values() : reference::Values{},
                                extras ? residual.values() : reference::Values{});
          CHECK_EQ(test::differences(out.values(), want, test::tolerance(out_dtype)), "");
          CHECK(out.gaps_intact());
          CHECK(x.gaps_intact());
        }
      }
    }
  }
}

TEST_CASE("linear may add into its own output") {
  for (Ops* ops : test::backends()) {
    test::Random random(3);
    HostTensor x(DType::kBF16, {9, 40}), w(DType::kBF16, {50, 40}), hidden(DType::kBF16, {9, 50});
    x.fill_random(random);
    w.fill_random(random);
    hidden.fill_random(random);
    const auto want = reference::linear(x.values(), w.values(), 40, {}, hidden.values());
    const test::TestLinear linear(*ops, w);
    ops->linear(hidden, x, linear.get(), {.bias = {}, .residual = hidden});
    ops->stream().synchronize();
    CHECK_EQ(test::differences(hidden.values(), want, test::tolerance(DType::kBF16)), "");
  }
}

TEST_CASE("a row of linear has the same bits alone, in any batch and with any number of threads") {
  constexpr int64_t kRows = 131;
  struct Matrix {
    int64_t out, in;
  };
  // Several K blocks of the own GEMM, the last of odd length; a matrix large enough for oneDNN; with several threads
  // its shards are unequal.
  for (const Matrix& m : {Matrix{200, 1101}, Matrix{330, 576}}) {
    for (const std::string& isa : test::cpu_isas()) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        CAPTURE(isa);
        CAPTURE(to_string(dtype));
        CAPTURE(m.in);
        test::Random random(11);
        HostTensor x(dtype, {kRows, m.in}), w(dtype, {m.out, m.in});
        x.fill_random(random);
        w.fill_random(random);
        std::vector<std::byte> want;
        for (const int threads : {1, 2, 3}) {
          CAPTURE(threads);
          const auto ops = test::cpu_backend(isa, threads);
          const test::TestLinear linear(*ops, w);
          const auto all = run(*ops, linear, x, 0, kRows, m.out, dtype);
          if (want.empty()) want = all;
          CHECK(all == want);
          for (const int64_t batch : {1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 64}) {
            CAPTURE(batch);
            const size_t row_bytes = want.size() / kRows;
            for (const int64_t begin : {int64_t{0}, kRows - batch}) {
              const auto part = run(*ops, linear, x, begin, batch, m.out, dtype);
              CHECK(std::memcmp(part.data(), want.data() + static_cast<size_t>(begin) * row_bytes, part.size()) == 0);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("linear undoes slices, stacking and GGUF's row order while it packs") {
  for (Ops* ops : test::backends()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      constexpr int64_t kCols = 70, kBegin = 5, kIn = 60, kHead = 6;
      test::Random random(5);
      HostTensor first(DType::kF32, {20, kCols}), second(DType::kBF16, {12, kCols}), x(dtype, {4, kIn});
      first.fill_random(random);
      second.fill_random(random);
      x.fill_random(random);
      LinearSpec spec{.in_features = kIn, .out_features = 8 + 12, .compute_dtype = dtype, .parts = {}};
      spec.parts.push_back({.format = WeightFormat::kF32,
                            .source_rows = 20,
                            .source_cols = kCols,
                            .row_begin = 3,
                            .row_end = 11,
                            .col_begin = kBegin,
                            .col_end = kBegin + kIn});
      spec.parts.push_back({.format = WeightFormat::kBF16,
                            .source_rows = 12,
                            .source_cols = kCols,
                            .row_begin = 0,
                            .row_end = 12,
                            .col_begin = kBegin,
                            .col_end = kBegin + kIn,
                            .row_order = RowOrder::kInterleavedToHalves,
                            .head_dim = kHead});
      Buffer storage = ops->memory().allocate(ops->linear_bytes(spec));
      const auto linear = ops->make_linear(spec, storage.bytes());
      test::push(*linear, 1, second.bytes());
      test::push(*linear, 0, first.bytes());
      linear->finish();
      HostTensor w(dtype, {20, kIn});
      for (int64_t i = 0; i < kIn; ++i) {
        for (int64_t r = 0; r < 8; ++r) w.set(r, i, first.get(r + 3, kBegin + i));
        for (int64_t r = 0; r < 12; ++r) {  // halves: row j of a head was stored at 2 j, row j + 3 at 2 j + 1
          const int64_t head = r / kHead, j = r % kHead;
          w.set(8 + r, i, second.get(head * kHead + (j < 3 ? 2 * j : 2 * (j - 3) + 1), kBegin + i));
        }
      }
      HostTensor out(DType::kF32, {4, 20});
      ops->linear(out, x, *linear);
      ops->stream().synchronize();
      CHECK_EQ(test::differences(out.values(), reference::linear(x.values(), w.values(), kIn, {}, {}),
                                 test::tolerance(DType::kF32)),
               "");
    }
  }
}

TEST_CASE("weights are their storage: objects made over a finished copy of it compute the same bits") {
  for (Ops* ops : test::backends()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const auto& [out_features, k] : {std::pair<int64_t, int64_t>{5, 3}, {33, 31}, {300, 288}}) {
        CAPTURE(ops->describe());
        CAPTURE(k);
        test::Random random(9);
        HostTensor w(dtype, {out_features, k}), x(dtype, {3, k});
        w.fill_random(random);
        x.fill_random(random);
        const LinearSpec spec = test::plain_spec(out_features, k, dtype);
        const Buffer packed = ops->memory().allocate(ops->linear_bytes(spec)),
                     rows = ops->memory().allocate(ops->embedding_bytes(spec));
        const auto linear = ops->make_linear(spec, packed.bytes());
        const auto embedding = ops->make_embedding(spec, rows.bytes());
        for (WeightSink* sink : {static_cast<WeightSink*>(linear.get()), static_cast<WeightSink*>(embedding.get())}) {
          test::push(*sink, 0, w.bytes());
          sink->finish();
        }
        const Buffer packed_copy = ops->memory().allocate(packed.num_bytes()),
                     rows_copy = ops->memory().allocate(rows.num_bytes());
        ops->stream().copy(packed_copy.data(), packed.data(), packed.num_bytes());
        ops->stream().copy(rows_copy.data(), rows.data(), rows.num_bytes());
        ops->stream().synchronize();
        const auto other_ops = test::another(*ops);
        CHECK_EQ(other_ops->weight_layout(), ops->weight_layout());
        const auto linear_again = other_ops->make_linear(spec, packed_copy.bytes());
        const auto embedding_again = other_ops->make_embedding(spec, rows_copy.bytes());
        linear_again->adopt();
        embedding_again->adopt();
        HostTensor out(DType::kF32, {3, out_features}), again(DType::kF32, {3, out_features});
        ops->linear(out, x, *linear);
        ops->stream().synchronize();
        other_ops->linear(again, x, *linear_again);
        other_ops->stream().synchronize();
        CHECK(again.values() == out.values());
        HostTensor ids(DType::kI32, {2}), last(DType::kI32, {1}), row(dtype, {2, k}), row_again(dtype, {2, k});
        ids.set(0, 0, 4);
        ids.set(0, 1, 2);
        ops->embed(row, *embedding, ids, last);
        ops->stream().synchronize();
        other_ops->embed(row_again, *embedding_again, ids, last);
        other_ops->stream().synchronize();
        CHECK(row_again.values() == row.values());
        CHECK(test::download(*ops, packed) == test::download(*ops, packed_copy));
      }
    }
  }
}

/// FNV-1a.
uint64_t fingerprint(std::span<const std::byte> bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3;
  return hash;
}

TEST_CASE("packed bytes are those of their layout's version") {
  // Files keep them: when these numbers change, kLayoutVersion (kernels/cpu/panel.h) must too.
  const auto ops = test::cpu_backend("avx2", 1);
  const auto packed = [&](DType dtype) {
    HostTensor w(dtype, {37, 31});
    for (int64_t i = 0; i < 37 * 31; ++i) w.set(i / 31, i % 31, static_cast<float>(i % 251 - 125) / 64);
    const LinearSpec spec = test::plain_spec(37, 31, dtype);
    const Buffer storage = ops->memory().allocate(ops->linear_bytes(spec));
    const auto linear = ops->make_linear(spec, storage.bytes());
    test::push(*linear, 0, w.bytes());
    linear->finish();
    return fingerprint(storage.bytes());
  };
  CHECK_EQ(packed(DType::kF32), 1540950316742220883u);
  CHECK_EQ(packed(DType::kBF16), 4736195083174623823u);
}

TEST_CASE("linear says what does not fit") {
  Ops& ops = *test::backends().front();
  HostTensor w(DType::kF32, {8, 9}), x(DType::kF32, {2, 10}), good(DType::kF32, {2, 9}), out(DType::kF32, {2, 8});
  w.fill(1);
  const test::TestLinear linear(ops, w);
  CHECK_THROWS_WITH_AS(ops.linear(out, x, linear.get()),
                       "linear: x float32 [2, 10] does not match weights float32 [8, 9]", Error);
  CHECK_THROWS_WITH_AS(ops.linear(x, good, linear.get()),
                       doctest::Contains("out float32 [2, 10] does not match x float32 [2, 9]"), Error);
  HostTensor bias(DType::kF32, {7});
  CHECK_THROWS_WITH_AS(ops.linear(out, good, linear.get(), {.bias = bias, .residual = {}}),
                       doctest::Contains("bias float32 [7] does not match out float32 [2, 8]"), Error);
}

TEST_CASE("weights and KV pages say what storage and shapes they need, on every backend") {
  for (Ops* backend : test::backends()) {
    Ops& ops = *backend;
    CAPTURE(ops.describe());
    const LinearSpec spec = test::plain_spec(8, 4, DType::kF32), empty = test::plain_spec(8, 0, DType::kF32);
    const Buffer storage = ops.memory().allocate(ops.linear_bytes(spec) + 64);
    const auto bytes = storage.bytes();
    const std::string wanted = fmt::format("[8, 4] needs {} bytes aligned to 64, got ", ops.linear_bytes(spec));
    CHECK_THROWS_WITH_AS(ops.make_linear(spec, bytes.subspan(0, 64)),
                         doctest::Contains(("make_linear: " + wanted + "64 at ").c_str()), Error);
    CHECK_THROWS_WITH_AS(ops.make_linear(spec, bytes.subspan(8)), doctest::Contains(wanted.c_str()), Error);
    CHECK_THROWS_WITH_AS(ops.make_linear(empty, bytes), doctest::Contains("make_linear: [8, 0] in float32"), Error);
    CHECK_THROWS_WITH_AS(ops.make_embedding(spec, bytes.subspan(0, 64)),
                         doctest::Contains("make_embedding: [8, 4] needs 128 bytes aligned to 64, got 64 at "), Error);
    const KvSpec kv{.num_layers = 1, .num_kv_heads = 1, .k_dim = 8, .v_dim = 8, .block_size = 16};
    CHECK_THROWS_WITH_AS(ops.make_kv_pool(kv, 2, bytes.subspan(0, 64)), doctest::Contains("make_kv_pool: 2 blocks of "),
                         Error);
    CHECK_THROWS_WITH_AS(ops.make_kv_pool(kv, -1, bytes), doctest::Contains("make_kv_pool: -1 blocks of "), Error);
  }
}

TEST_CASE("a linear that never got all its rows says which part lacks how many") {
  Ops& ops = *test::backends().front();
  const LinearSpec spec = test::plain_spec(8, 4, DType::kF32);
  Buffer storage = ops.memory().allocate(ops.linear_bytes(spec));
  const auto linear = ops.make_linear(spec, storage.bytes());
  const std::vector<std::byte> rows(3 * 16);
  linear->write(0, 0, rows);
  CHECK_THROWS_WITH_AS(linear->finish(), doctest::Contains("part 0 got 3 of its 8 rows"), Error);
  CHECK_THROWS_WITH_AS(linear->write(0, 16, rows), doctest::Contains("got bytes [16, 64) after 48"), Error);
}
