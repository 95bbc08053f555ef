// The attention backends over paged keys and values against the f64 reference and against themselves.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "kernels/core/error.h"
#include "tests/support/attention_sequences.h"
#include "tests/support/cuda_device.h"
#include "tests/support/tolerance.h"
#ifdef TOKENMILL_CUDA_EMULATED
#include "kernels/emulation/runtime.h"
#endif

using namespace tokenmill;
using Sequence = test::AttentionSequence;
using Shape = test::AttentionShape;
using test::attention_of;
using test::attention_step;
using test::copy_rows;
using test::HostTensor;
using test::PagedSequences;
using test::SequenceInput;

namespace {

/// The backends that the device has.
std::vector<std::string> backends(Device device) {
  std::vector<std::string> names = {"paged_mma"};
  if (make_ops(device, {})->describe().find("paged_wgmma") != std::string::npos) names.emplace_back("paged_wgmma");
  return names;
}

bool has_heads_of(const std::string& backend, int64_t dim) { return backend == "paged_mma" || dim == 64 || dim == 128; }

std::unique_ptr<Ops> make_backend(Device device, const std::string& name, int64_t part_bytes = int64_t{4} << 20) {
  OpsOptions options;
  options.attention_backend = name;
  options.attention_part_bytes = part_bytes;
  return make_ops(device, options);
}

/// The last `tail` tokens of a sequence in chunks, the earlier ones stored in one step; mates: sequences that come
/// along, half before it, in chunks as long, until they end.
std::vector<std::byte> tail_bits(Ops& ops, const Shape& h, DType dtype, const Sequence& sequence, int64_t tail,
                                 int64_t chunk, const AttentionParams& params,
                                 const std::vector<const Sequence*>& mates = {}) {
  std::vector<const Sequence*> all(mates);
  const size_t own = mates.size() / 2;
  all.insert(all.begin() + static_cast<std::ptrdiff_t>(own), &sequence);
  PagedSequences paged(ops, test::spec_of(h, dtype), static_cast<int64_t>(all.size()), sequence.length(), NAN);
  std::vector<SequenceInput> inputs(all.size());
  inputs[own].tokens = sequence.length() - tail;
  if (inputs[own].tokens > 0) attention_step(ops, paged, h, dtype, all, inputs, params, {.attend = false});
  std::vector<std::byte> bits;
  while (true) {
    int64_t row = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      inputs[i].context += inputs[i].tokens;
      inputs[i].tokens = std::min(chunk, all[i]->length() - inputs[i].context);
      if (i < own) row += inputs[i].tokens;
    }
    if (inputs[own].tokens == 0) return bits;
    const HostTensor out = attention_step(ops, paged, h, dtype, all, inputs, params);
    const auto bytes = out.bytes();
    const auto row_bytes = static_cast<int64_t>(bytes.size()) / out.view().rows();
    const auto begin = bytes.begin() + row * row_bytes;
    bits.insert(bits.end(), begin, begin + inputs[own].tokens * row_bytes);
  }
}

}  // namespace

TEST_CASE("paged attention matches the f64 reference for every head size, both types, windows and softcap") {
  const auto device = test::cuda_device();
  if (!device) return;
  for (const std::string& backend : backends(*device)) {
    CAPTURE(backend);
    const auto ops = make_backend(*device, backend);
    constexpr Shape kShapes[] = {{6, 2, 64, 64, 16}, {1, 1, 96, 96, 48}, {20, 1, 128, 128, 32}, {2, 1, 256, 256, 16}};
    for (const Shape& h : kShapes) {
      if (!has_heads_of(backend, h.k_dim)) continue;
      for (const DType dtype : {DType::kBF16, DType::kF16}) {
        for (const AttentionParams params :
             {AttentionParams{0.1f, 0, 0}, AttentionParams{0.1f, 9, 0}, AttentionParams{0.2f, 0, 3.0f}}) {
          for (const int64_t length : {1, 17, 70}) {
            if (length == 17 && params.window == 0) continue;
            CAPTURE(h.k_dim);
            CAPTURE(to_string(dtype));
            CAPTURE(length);
            CAPTURE(params.window);
            CAPTURE(params.softcap);
            const Sequence sequence(h, dtype, length, 21);
            PagedSequences paged(*ops, test::spec_of(h, dtype), 1, length, NAN);
            const HostTensor out = attention_step(*ops, paged, h, dtype, {&sequence}, {{0, length}}, params);
            // One more rounding than elsewhere: of the weights, 2^-9 (bf16) of what they weigh, which is below 1 here.
            const test::Tolerance t = test::tolerance(DType::kBF16);
            CHECK_EQ(test::differences(out.values(), attention_of(h, sequence, params),
                                       dtype == DType::kBF16 ? test::Tolerance{2 * t.absolute, t.relative}
                                                             : test::Tolerance{t.absolute / 4, t.relative / 8}),
                     "");
          }
        }
      }
    }
  }
}

TEST_CASE("paged attention matches the f64 reference over several splits, in one piece and decoded") {
  const auto device = test::cuda_device();
  if (!device) return;
  for (const std::string& backend : backends(*device)) {
    CAPTURE(backend);
    const auto ops = make_backend(*device, backend);
    const Shape h{3, 1, 64, 64, 16};
    const Sequence sequence(h, DType::kBF16, 1100, 22);
    for (const AttentionParams params : {AttentionParams{0.2f, 0, 0}, AttentionParams{0.2f, 600, 0}}) {
      for (const int64_t tail : {2, 30}) {
        PagedSequences paged(*ops, test::spec_of(h, DType::kBF16), 1, 1100, NAN);
        attention_step(*ops, paged, h, DType::kBF16, {&sequence}, {{0, 1100 - tail}}, params, {.attend = false});
        const HostTensor out = attention_step(*ops, paged, h, DType::kBF16, {&sequence}, {{1100 - tail, tail}}, params);
        CHECK_EQ(test::differences(out.values(), attention_of(h, sequence, params, 1100 - tail), {2e-3, 1.0 / 128}),
                 "");
      }
    }
  }
}

TEST_CASE(
    "paged attention gives a token the same bits in any chunk, batch and block size, its splits together or apart") {
  const auto device = test::cuda_device();
  if (!device) return;
  for (const std::string& backend : backends(*device)) {
    CAPTURE(backend);
    const auto apart = make_backend(*device, backend), together = make_backend(*device, backend, 64);
    for (const int64_t dim : {64, 96, 128, 256}) {
      if (!has_heads_of(backend, dim) || (dim == 128 && backend == "paged_mma")) continue;
      for (const int64_t window : {0, 100, 540}) {
        if ((dim == 96 && window != 540) || (dim == 256 && window != 0)) continue;
        CAPTURE(dim);
        CAPTURE(window);
        Shape h{3, 1, dim, dim, 16};
        const DType dtype = dim == 96 ? DType::kF16 : DType::kBF16;
        const AttentionParams params{0.2f, window, dim == 96 ? 20.0f : 0.0f};
        const Sequence a(h, dtype, 1045, 31), b(h, dtype, 77, 32), c(h, dtype, 1, 33), d(h, dtype, 30, 34);
        constexpr int64_t kTail = 28;  // across the border of two splits
        const auto bits = tail_bits(*apart, h, dtype, a, kTail, kTail, params);
        CHECK(bits == tail_bits(*apart, h, dtype, a, kTail, 5, params));
        CHECK(bits == tail_bits(*together, h, dtype, a, kTail, 5, params));
        CHECK(bits == tail_bits(*apart, h, dtype, a, kTail, 9, params, {&b, &c, &d}));
        h.block_size = 48;
        CHECK(bits == tail_bits(*together, h, dtype, a, kTail, 11, params, {&c, &b}));
      }
    }
  }
}

TEST_CASE("paged attention computes a chunk of more row tiles than blocks run at once") {
  const auto device = test::cuda_device();
  if (!device) return;
  for (const std::string& backend : backends(*device)) {
    CAPTURE(backend);
    const auto ops = make_backend(*device, backend);
    const Shape h{8, 1, 64, 64, 16};
    const Sequence sequence(h, DType::kF16, 420, 23);
    const AttentionParams params{0.2f, 100, 0};
    PagedSequences paged(*ops, test::spec_of(h, DType::kF16), 1, 420, NAN);
    const auto want = attention_of(h, sequence, params);
    const auto check = [&] {
      const HostTensor out = attention_step(*ops, paged, h, DType::kF16, {&sequence}, {{0, 420}}, params);
      CHECK_EQ(test::differences(out.values(), want, {5e-4, 1.0 / 1024}), "");
    };
    check();
#ifdef TOKENMILL_CUDA_EMULATED  // with warps in other orders
    const emulation::Settings settings = emulation::settings();
    for (const uint64_t seed : {3, 4, 5, 6, 7, 8}) {
      CAPTURE(seed);
      emulation::Settings other = settings;
      other.seed = seed;
      emulation::configure(other);
      check();
    }
    emulation::configure(settings);
#endif
  }
}

TEST_CASE("paged attention reads neither blocks behind the window nor stale slots, and leaves padding rows alone") {
  const auto device = test::cuda_device();
  if (!device) return;
  for (const std::string& backend : backends(*device)) {
    CAPTURE(backend);
    const auto ops = make_backend(*device, backend);
    const Shape h{2, 1, 64, 64, 16};
    const AttentionParams params{0.2f, 40, 0};
    const Sequence a(h, DType::kBF16, 150, 41), b(h, DType::kBF16, 3, 42);
    PagedSequences paged(*ops, test::spec_of(h, DType::kBF16), 2, 160, INFINITY);
    attention_step(*ops, paged, h, DType::kBF16, {&a, &b}, {{0, 140}, {0, 0}}, params, {.attend = false});
    const StepTensors& step = paged.step({{140, 10}, {0, 3}});
    for (int64_t block = 0; block < 100 / 16; ++block) step.groups[0].block_table.as<int32_t>()[block] = 1 << 30;
    step.cu_seqlens.as<int32_t>()[2] = 10;  // the second sequence has no tokens: its rows are padding
    HostTensor q(DType::kBF16, {13, 128}), k(DType::kBF16, {13, 64}), v(DType::kBF16, {13, 64}),
        out(DType::kBF16, {13, 128}), cos_sin(DType::kF32, {13, 0});
    q.fill(NAN);
    k.fill(NAN);
    v.fill(NAN);
    copy_rows(a.q, 140, q, 0, 10);
    copy_rows(a.k, 140, k, 0, 10);
    copy_rows(a.v, 140, v, 0, 10);
    out.fill(7);
    const KvLayer layer{&paged.pool(), 1, 0};
    ops->plan(step);
    ops->rope_and_store_kv({.q = q, .k = k, .v = v, .cos_sin = cos_sin}, step, layer);
    ops->attention(out, q, step, layer, params);
    ops->stream().synchronize();
    auto got = out.values();
    CHECK(std::all_of(got.begin() + 10 * 128, got.end(), [](double x) { return x == 7; }));
    got.resize(10 * 128);
    CHECK_EQ(test::differences(got, attention_of(h, a, params, 140), {4e-3, 1.0 / 128}), "");
  }
}

TEST_CASE("paged attention reads rows that are not aligned to 16 bytes with the same bits") {
  const auto device = test::cuda_device();
  if (!device) return;
  for (const std::string& backend : backends(*device)) {
    CAPTURE(backend);
    const auto ops = make_backend(*device, backend);
    const Shape h{3, 1, 64, 64, 16};
    const Sequence a(h, DType::kBF16, 20, 51);
    const auto bits = [&](int64_t pad) {
      PagedSequences paged(*ops, test::spec_of(h, DType::kBF16), 1, 20, NAN);
      return attention_step(*ops, paged, h, DType::kBF16, {&a}, {{0, 20}}, {0.2f, 0, 0}, {.padding = pad}).bytes();
    };
    CHECK(bits(0) == bits(3));
  }
}

TEST_CASE("a recorded step of paged attention plans anew from the lengths that it finds when replayed") {
  const auto device = test::cuda_device();
  if (!device) return;
  for (const std::string& backend : backends(*device)) {
    CAPTURE(backend);
    const auto ops = make_backend(*device, backend);
    const Shape h{4, 2, 64, 64, 16};
    const AttentionParams params{0.2f, 0, 0};
    const Sequence a(h, DType::kBF16, 700, 61), b(h, DType::kBF16, 700, 62);
    PagedSequences paged(*ops, test::spec_of(h, DType::kBF16), 2, 700, NAN);
    attention_step(*ops, paged, h, DType::kBF16, {&a, &b}, {{0, 700}, {0, 700}}, params, {.attend = false});
    const StepTensors& step = paged.step({{699, 1}, {699, 1}});
    HostTensor q(DType::kBF16, {2, 256}), out(DType::kBF16, {2, 256});
    const KvLayer layer{&paged.pool(), 1, 0};
    const auto set_lengths = [&](int64_t of_a, int64_t of_b) {
      int64_t row = 0;
      for (const int64_t length : {of_a, of_b}) {
        step.positions.as<int64_t>()[row] = length - 1;
        step.seq_lens.as<int64_t>()[row++] = length;
      }
      copy_rows(a.q, of_a - 1, q, 0, 1);
      copy_rows(b.q, of_b - 1, q, 1, 1);
    };
    const auto attend = [&] {
      ops->plan(step);
      ops->attention(out, q, step, layer, params);
    };
    const auto computed = [&](int64_t of_a, int64_t of_b) {
      set_lengths(of_a, of_b);
      attend();
      ops->stream().synchronize();
      return out.bytes();
    };
    const auto one = computed(5, 690), other = computed(650, 30);
    CHECK(one != other);
    set_lengths(300, 300);
    ops->stream().begin_capture();
    attend();
    const auto recording = ops->stream().end_capture();
    const auto replayed = [&](int64_t of_a, int64_t of_b) {
      set_lengths(of_a, of_b);
      out.fill(0);
      ops->stream().replay(*recording);
      ops->stream().synchronize();
      return out.bytes();
    };
    CHECK(replayed(5, 690) == one);
    CHECK(replayed(650, 30) == other);
  }
}
