// Whole steps: all operations of a decoder in a row, over pages, chunk by chunk.
#include <doctest/doctest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>

#include "tests/support/fake_ops.h"
#include "tests/support/tiny_layer.h"
#include "tests/support/tolerance.h"

// Counts every allocation through operator new in this test program.
static std::atomic<int64_t> allocations{0};
void* operator new(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size);
}  // std::stable_sort's
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

using namespace tokenmill;
using test::HostTensor;
using test::TinyLayers;

namespace {

constexpr int64_t kLength = 150;

int32_t token(int64_t sequence, int64_t position) {
  return static_cast<int32_t>((sequence * 131 + position * 17 + position * position) % TinyLayers::kVocab);
}

/// Logits of all tokens of the sequences with those numbers and lengths, fed in chunks.
std::vector<HostTensor> run(Ops& ops, DType dtype, const std::vector<std::pair<int64_t, int64_t>>& sequences,
                            int64_t chunk) {
  TinyLayers layers(ops, dtype);
  test::PagedSequences paged(ops, layers.kv_spec(), static_cast<int64_t>(sequences.size()), kLength, NAN);
  std::vector<HostTensor> logits;
  for (const auto& [number, length] : sequences) {
    logits.emplace_back(DType::kF32, std::initializer_list<int64_t>{length, TinyLayers::kVocab});
  }
  for (int64_t done = 0; done < kLength; done += chunk) {
    std::vector<test::SequenceInput> inputs;
    std::vector<int32_t> ids;
    for (const auto& [number, length] : sequences) {
      const int64_t begin = std::min(done, length), end = std::min(done + chunk, length);
      inputs.push_back({.context = begin, .tokens = end - begin});
      for (int64_t p = begin; p < end; ++p) ids.push_back(token(number, p));
    }
    if (ids.empty()) break;
    const HostTensor out = layers.run(paged.step(inputs), paged.pool(), ids);
    int64_t row = 0;
    for (size_t s = 0; s < inputs.size(); ++s) {
      for (int64_t t = 0; t < inputs[s].tokens; ++t, ++row) {
        std::copy_n(out.view().row<float>(row), TinyLayers::kVocab, logits[s].view().row<float>(inputs[s].context + t));
      }
    }
  }
  return logits;
}

}  // namespace

TEST_CASE("a sequence's logits have the same bits alone, among others, in any chunks and with any number of threads") {
  for (const std::string& isa : test::cpu_isas()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      std::vector<std::byte> want;
      for (const int threads : {1, 2, 3}) {
        const auto ops = test::cpu_backend(isa, threads);
        for (const int64_t chunk : {int64_t{1}, int64_t{17}, int64_t{64}, kLength}) {
          CAPTURE(isa);
          CAPTURE(to_string(dtype));
          CAPTURE(threads);
          CAPTURE(chunk);
          const auto alone = run(*ops, dtype, {{5, kLength}}, chunk);
          if (want.empty()) want = alone[0].bytes();
          CHECK(alone[0].bytes() == want);
          const auto mixed = run(*ops, dtype, {{1, 30}, {5, kLength}, {2, 1}, {3, 77}}, chunk);
          CHECK(mixed[1].bytes() == want);
        }
      }
    }
  }
}

TEST_CASE("the CPU device and the fake backend agree on whole steps") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    test::FakeOps fake;
    const auto want = run(fake, dtype, {{5, 20}, {6, 9}}, 8);
    for (Ops* ops : test::backends()) {
      const auto got = run(*ops, dtype, {{5, 20}, {6, 9}}, 20);
      for (size_t s = 0; s < want.size(); ++s) {
        double error = 0, size = 0;
        const auto a = got[s].values(), b = want[s].values();
        for (size_t i = 0; i < a.size(); ++i) {
          error += (a[i] - b[i]) * (a[i] - b[i]);
          size += b[i] * b[i];
        }
        REQUIRE(size > 0);
        // f32: rounding of a few hundred operations. bf16: values rounded at the same points may fall to the neighbour.
        CHECK(std::sqrt(error / size) < (dtype == DType::kF32 ? 1e-5 : 0.02));
      }
    }
  }
}

TEST_CASE("after a first step of the largest size, steps do not allocate") {
  for (const std::string& isa : test::cpu_isas()) {
    for (const int threads : {1, 2}) {
      const auto ops = test::cpu_backend(isa, threads);
      TinyLayers layers(*ops, DType::kBF16);
      test::PagedSequences paged(*ops, layers.kv_spec(), 3, 1200, NAN);
      const TinyLayers::Activations large(DType::kBF16, 64), small(DType::kBF16, 3);
      large.token_ids.view().as<int32_t>()[0] = 1;
      layers.enqueue(paged.step({{0, 40}, {0, 20}, {0, 4}}), paged.pool(), large);
      layers.enqueue(paged.step({{1100, 1}, {800, 1}, {4, 1}}), paged.pool(), small);
      const StepTensors& step = paged.step({{1101, 1}, {801, 1}, {5, 1}});
      const int64_t before = allocations, bytes = static_cast<int64_t>(mallinfo2().uordblks);
      layers.enqueue(step, paged.pool(), small);
      layers.enqueue(step, paged.pool(), small);
      ops->stream().synchronize();
      CHECK_EQ(allocations - before, 0);
      CHECK_EQ(static_cast<int64_t>(mallinfo2().uordblks) - bytes, 0);
    }
  }
}
