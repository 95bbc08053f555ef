#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/support/attention_sequences.h"
#include "tests/support/backends.h"
#include "tests/support/reference.h"
#include "tests/support/tolerance.h"

using namespace tokenmill;
using Sequence = test::AttentionSequence;
using Shape = test::AttentionShape;
using test::HostTensor;
using test::PagedSequences;
using test::SequenceInput;

namespace {

/// Feeds `sequences` through the cache in steps of chunk tokens each (all sequences in one step) and returns the
/// outputs of every token of every sequence. Steps that end before token `first` store keys and values only.
std::vector<HostTensor> run(Ops& ops, const Shape& s, DType dtype, const std::vector<const Sequence*>& sequences,
                            int64_t chunk, const AttentionParams& params, double poison = NAN,
                            int64_t first = 0) {
  int64_t room = 2048;
  for (const Sequence* sequence : sequences) room = std::max(room, sequence->length());
  PagedSequences paged(ops, test::spec_of(s, dtype), static_cast<int64_t>(sequences.size()), room, poison);
  std::vector<HostTensor> outputs;
  for (const Sequence* sequence : sequences) {
    outputs.emplace_back(dtype, std::initializer_list<int64_t>{sequence->length(), s.heads * s.v_dim});
  }
  for (int64_t done = 0;; done += chunk) {
    std::vector<SequenceInput> inputs;
    int64_t tokens = 0;
    for (const Sequence* sequence : sequences) {
      const int64_t count = std::clamp<int64_t>(sequence->length() - done, 0, chunk);
      inputs.push_back({.context = std::min(done, sequence->length()), .tokens = count});
      tokens += count;
    }
    if (tokens == 0) break;
    const HostTensor out = test::attention_step(ops, paged, s, dtype, sequences, inputs, params,
                                                {.attend = done + chunk > first, .padding = 4});
    int64_t row = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (int64_t r = 0; r < inputs[i].tokens; ++r, ++row) {
        for (int64_t c = 0; c < s.heads * s.v_dim; ++c) outputs[i].set(inputs[i].context + r, c, out.get(row, c));
      }
    }
  }
  return outputs;
}

constexpr Shape kShapes[] = {
    {9, 3, 64, 64, 16},   // grouped
    {4, 4, 32, 32, 32},   // one query head per KV head
    {5, 1, 16, 16, 48},   // one KV head, a block that is no power of two
    {3, 1, 20, 20, 16},   // head size that fills no vector
    {2, 1, 15, 7, 16},    // odd, k_dim != v_dim
    {20, 1, 24, 40, 16},  // a group larger than a row tile
};

}  // namespace

TEST_CASE("attention matches the f64 reference over grouped, odd and unequal heads, with windows and softcap") {
  for (Ops* ops : test::backends()) {
    const std::vector<int64_t> lengths =
        test::is_slow(*ops) ? std::vector<int64_t>{1, 17} : std::vector<int64_t>{1, 15, 17, 70};
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Shape& s : kShapes) {
        for (const int64_t length : lengths) {
          for (const AttentionParams params :
               {AttentionParams{0.3f, 0, 0}, AttentionParams{0.2f, 9, 0}, AttentionParams{0.5f, 0, 3.0f}}) {
            CAPTURE(ops->describe());
            CAPTURE(to_string(dtype));
            CAPTURE(s.heads);
            CAPTURE(s.k_dim);
            CAPTURE(length);
            CAPTURE(params.window);
            CAPTURE(params.softcap);
            const Sequence sequence(s, dtype, length, 21);
            const auto got = run(*ops, s, dtype, {&sequence}, length, params);
            CHECK_EQ(
                test::differences(got[0].values(), test::attention_of(s, sequence, params), test::tolerance(dtype)),
                "");
          }
        }
      }
    }
  }
}

TEST_CASE("attention over several splits matches the f64 reference") {
  const Shape s{6, 2, 16, 16, 16};
  for (Ops* ops : test::backends()) {
    const int64_t first = test::is_slow(*ops) ? 1080 : 0, chunk = test::is_slow(*ops) ? 360 : 400;
    const Sequence sequence(s, DType::kF32, 1100, 22);
    for (const AttentionParams params : {AttentionParams{0.3f, 0, 0}, AttentionParams{0.3f, 600, 0}}) {
      const auto got = run(*ops, s, DType::kF32, {&sequence}, chunk, params, NAN, first);
      auto tail = got[0].values();
      tail.erase(tail.begin(), tail.begin() + first * s.heads * s.v_dim);
      CHECK_EQ(test::differences(tail, test::attention_of(s, sequence, params, first), test::tolerance(DType::kF32)),
               "");
    }
  }
}

TEST_CASE("a token's attention has the same bits in any chunk, batch, block size and with any number of threads") {
  for (const std::string& isa : test::cpu_isas()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t window : {0, 100}) {
        Shape s{6, 2, 20, 20, 16};
        const AttentionParams params{0.3f, window, 0};
        const Sequence a(s, dtype, 553, 31), b(s, dtype, 77, 32), c(s, dtype, 1, 33);
        std::vector<std::byte> want_a, want_b;
        for (const int threads : {1, 2, 3}) {
          const auto ops = test::cpu_backend(isa, threads);
          for (const int64_t chunk : {1, 13, 64, 553}) {
            if (chunk == 1 && threads != 2) continue;
            CAPTURE(isa);
            CAPTURE(to_string(dtype));
            CAPTURE(threads);
            CAPTURE(chunk);
            s.block_size = chunk == 64 ? 48 : 16;
            const auto alone = run(*ops, s, dtype, {&a}, chunk, params);
            if (want_a.empty()) want_a = alone[0].bytes();
            CHECK(alone[0].bytes() == want_a);
            const auto mixed =
                run(*ops, s, dtype, {&b, &a, &c}, chunk, params, std::numeric_limits<double>::infinity());
            if (want_b.empty()) want_b = mixed[0].bytes();
            CHECK(mixed[0].bytes() == want_b);
            CHECK(mixed[1].bytes() == want_a);
          }
        }
      }
    }
  }
}

TEST_CASE("a long context's splits have the same bits in several rounds over the team as on one thread") {
  const Shape s{2, 2, 8, 8, 16};
  constexpr int64_t kLength = 12'003, kChunk = 12'000;  // the last 3 tokens: 2 heads x 24 splits, 16 per thread a round
  const Sequence sequence(s, DType::kF32, kLength, 34);
  std::vector<std::byte> want;
  for (const int threads : {1, 2, 3}) {
    CAPTURE(threads);
    const auto ops = test::cpu_backend(test::cpu_isas().front(), threads);
    const auto got = run(*ops, s, DType::kF32, {&sequence}, kChunk, {0.3f, 0, 0});
    if (want.empty()) want = got[0].bytes();
    CHECK(got[0].bytes() == want);
  }
}

TEST_CASE("rope_and_store_kv rotates q and k, normalizes heads first, and stores what attention then reads") {
  for (Ops* ops : test::backends()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t rotary : {12, 8}) {
        const Shape s{4, 2, 12, 10, 16};
        constexpr int64_t kTokens = 19;
        test::Random random(41);
        PagedSequences paged(*ops, test::spec_of(s, dtype), 1, 64, NAN);
        const StepTensors& step = paged.step({{.context = 0, .tokens = kTokens}});
        HostTensor qkv(dtype, {kTokens, 4 * 12 + 2 * 12 + 2 * 10}), q_norm(dtype, {12}), k_norm(dtype, {12});
        HostTensor cos_sin(DType::kF32, {kTokens, rotary}, 1), freq(DType::kF32, {rotary / 2});
        qkv.fill_random(random);
        q_norm.fill_random(random, 0.5, 1.5);
        k_norm.fill_random(random, 0.5, 1.5);
        freq.fill_random(random, 0, 1);
        const TensorView q = qkv.view().slice_cols(0, 48), k = qkv.view().slice_cols(48, 24),
                         v = qkv.view().slice_cols(72, 20);
        const auto copy = [](const TensorView& view) {
          reference::Values out;
          for (int64_t r = 0; r < view.rows(); ++r) {
            for (int64_t c = 0; c < view.cols(); ++c) out.push_back(HostTensor::get_at(view, r, c));
          }
          return out;
        };
        std::vector<int64_t> positions(kTokens);
        std::iota(positions.begin(), positions.end(), 0);
        std::vector<float> inv_freq;
        for (const double f : freq.values()) inv_freq.push_back(static_cast<float>(f));
        const auto norm_heads = [&](reference::Values x, const HostTensor& weight) {
          x = reference::rms_norm(x, weight.values(), 12, 1e-6);
          if (dtype == DType::kBF16) {
            for (double& value : x) value = to_float(to_bf16(static_cast<float>(value)));
          }
          return reference::rope(x, positions, inv_freq, 12, 1);
        };
        const auto want_q = norm_heads(copy(q), q_norm), want_k = norm_heads(copy(k), k_norm), want_v = copy(v);
        ops->rope_angles(cos_sin, step.positions, freq, 1);
        ops->rope_and_store_kv(
            {.q = q, .k = k, .v = v, .cos_sin = cos_sin, .q_norm = q_norm, .k_norm = k_norm, .norm_eps = 1e-6f}, step,
            {&paged.pool(), 1, 0});
        ops->stream().synchronize();
        // The normalized value may round to the neighbour: one bf16 step more than elsewhere.
        const test::Tolerance t{test::tolerance(dtype).absolute * 4, test::tolerance(dtype).relative * 2};
        CHECK_EQ(test::differences(copy(q), want_q, t), "");
        CHECK_EQ(test::differences(copy(k), want_k, t), "");
        CHECK_EQ(copy(v), want_v);
        // What lies in the pages: the same values as in k and v, bit for bit, in layer 1 alone.
        for (int64_t token = 0; token < kTokens; ++token) {
          for (int64_t head = 0; head < 2; ++head) {
            for (int64_t d = 0; d < 12; ++d)
              CHECK_EQ(paged.stored_key(0, 1, token, head, d), HostTensor::get_at(k, token, head * 12 + d));
            for (int64_t d = 0; d < 10; ++d)
              CHECK_EQ(paged.stored_value(0, 1, token, head, d), HostTensor::get_at(v, token, head * 10 + d));
          }
        }
        CHECK(std::isnan(paged.stored_key(0, 0, 0, 0, 0)));
        CHECK(std::isnan(paged.stored_key(0, 1, kTokens, 0, 0)));
      }
    }
  }
}

TEST_CASE("padding tokens are written nowhere") {
  for (Ops* ops : test::backends()) {
    const Shape s{1, 1, 4, 4, 16};
    PagedSequences paged(*ops, test::spec_of(s, DType::kF32), 1, 16, NAN);
    const StepTensors step = paged.step({{.context = 0, .tokens = 2}});
    step.groups[0].slot_mapping.as<int64_t>()[1] = -1;
    HostTensor q(DType::kF32, {2, 4}), k(DType::kF32, {2, 4}), v(DType::kF32, {2, 4}), cos_sin(DType::kF32, {2, 0});
    q.fill(1);
    k.fill(2);
    v.fill(3);
    ops->rope_and_store_kv({.q = q, .k = k, .v = v, .cos_sin = cos_sin}, step, {&paged.pool(), 0, 0});
    ops->stream().synchronize();
    CHECK_EQ(paged.stored_key(0, 0, 0, 0, 0), 2.0);
    CHECK(std::isnan(paged.stored_key(0, 0, 1, 0, 0)));
    step.groups[0].slot_mapping.as<int64_t>()[1] = 1 << 20;
    ops->rope_and_store_kv({.q = q, .k = k, .v = v, .cos_sin = cos_sin}, step, {&paged.pool(), 0, 0});
    CHECK_THROWS_WITH_AS(ops->stream().synchronize(), doctest::Contains("slot 1048576 of "), Error);
  }
}

TEST_CASE("a NaN in a query reaches its own output and no other row") {
  for (Ops* ops : test::backends()) {
    const Shape s{3, 1, 16, 16, 16};
    Sequence sequence(s, DType::kF32, 20, 51);
    const auto clean = run(*ops, s, DType::kF32, {&sequence}, 20, {0.3f, 0, 0});
    sequence.q.set(7, 0, NAN);  // token 7, head 0
    const auto got = run(*ops, s, DType::kF32, {&sequence}, 20, {0.3f, 0, 0});
    for (int64_t t = 0; t < 20; ++t) {
      for (int64_t c = 0; c < 48; ++c) {
        if (t == 7 && c < 16) {
          CHECK(std::isnan(got[0].get(t, c)));
        } else {
          CHECK_EQ(got[0].get(t, c), clean[0].get(t, c));
        }
      }
    }
  }
}

TEST_CASE("blocks are copied, zeroed, exported and imported whole, all layers") {
  for (Ops* ops : test::backends()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const KvSpec spec{.num_layers = 3, .num_kv_heads = 2, .k_dim = 5, .v_dim = 18, .dtype = dtype, .block_size = 32};
      Buffer storage = ops->memory().allocate(4 * ops->kv_block_bytes(spec));
      const auto pool = ops->make_kv_pool(spec, 4, storage.bytes());
      const auto bytes = static_cast<size_t>(canonical_block_bytes(spec));
      REQUIRE_EQ(bytes, static_cast<size_t>(3 * 32 * 2 * 23 * dtype_size(dtype)));
      std::vector<std::byte> in(2 * bytes), out(2 * bytes);
      for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::byte>(i * 7 % 251);
      const int32_t ids[] = {2, 0};
      ops->import_blocks(*pool, ids, in);
      ops->export_blocks(*pool, ids, out);
      CHECK(in == out);
      const BlockCopy copies[] = {{2, 1}, {0, 3}};
      ops->copy_blocks(*pool, copies);
      const int32_t copied[] = {1, 3};
      const int32_t first[] = {2};
      ops->zero_blocks(*pool, first);
      ops->export_blocks(*pool, copied, out);
      CHECK(in == out);
      std::vector<std::byte> one(bytes);
      ops->export_blocks(*pool, first, one);
      CHECK(one == std::vector<std::byte>(bytes));
      const int32_t outside[] = {4};
      CHECK_THROWS_WITH_AS(ops->zero_blocks(*pool, outside), "zero_blocks: block 4 of a pool of 4", Error);
      CHECK_THROWS_WITH_AS(ops->export_blocks(*pool, ids, one), doctest::Contains("2 blocks have"), Error);
    }
  }
}

TEST_CASE("attention says what does not fit") {
  Ops& ops = *test::backends().front();
  const Shape s{4, 2, 8, 8, 16};
  PagedSequences paged(ops, test::spec_of(s, DType::kF32), 1, 16, NAN);
  const StepTensors& step = paged.step({{.context = 0, .tokens = 2}});
  HostTensor q(DType::kF32, {2, 32}), out(DType::kF32, {2, 24}), half(DType::kBF16, {2, 32}), odd(DType::kF32, {2, 24});
  CHECK_THROWS_WITH_AS(ops.attention(out, q, step, {&paged.pool(), 0, 0}, {}),
                       doctest::Contains("attention: out float32 [2, 24] does not match q float32 [2, 32]"), Error);
  CHECK_THROWS_WITH_AS(ops.attention(half, half, step, {&paged.pool(), 0, 0}, {}),
                       doctest::Contains("bfloat16 [2, 32] against KV pages of float32"), Error);
  CHECK_THROWS_WITH_AS(ops.attention(odd, odd, step, {&paged.pool(), 0, 0}, {}),
                       doctest::Contains("does not hold a multiple of 2 kv heads of 8"), Error);
  CHECK_THROWS_WITH_AS(ops.attention(q, q, step, {&paged.pool(), 2, 0}, {}),
                       doctest::Contains("layer 2 of a KV pool of 2"), Error);
}
