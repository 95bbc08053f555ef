// cp.async: what arrives, and that it is not there before it was waited for.
#include <doctest/doctest.h>

#include <cmath>

#include "kernels/cuda/ptx.h"
#include "tests/support/run_kernel.h"
#include "tests/support/sanitized.h"

using namespace tokenmill;

namespace {

enum class Bug { kNone, kNoWait, kNoBarrier, kNoBarrierBeforeReuse };

/// Sums of rows of 128 floats through two buffers, the next chunk under way while one is added.
__global__ void sum_chunks(float* out, const float* in, int num_chunks, Bug bug) {
  struct __align__(16) Buffers {
    float chunk[2][128];
  };
  GPU_SHARED(Buffers, buffers);
  const unsigned t = threadIdx.x;  // 128 threads; the first 32 copy
  const auto start = [&](int chunk) {
    if (t < 32) ptx::cp_async<16>(&buffers.chunk[chunk % 2][t * 4], in + chunk * 128 + t * 4);
    ptx::cp_async_commit();
  };
  float sum = 0;
  start(0);
  for (int chunk = 0; chunk < num_chunks; ++chunk) {
    if (chunk + 1 < num_chunks) {
      start(chunk + 1);
      if (bug != Bug::kNoWait) ptx::cp_async_wait<1>();
    } else {
      ptx::cp_async_wait<0>();
    }
    if (bug != Bug::kNoBarrier) __syncthreads();
    sum += buffers.chunk[chunk % 2][127 - t];
    if (bug != Bug::kNoBarrierBeforeReuse) __syncthreads();
  }
  out[t] = sum;
}

bool sums_are_right(uint64_t seed, Bug bug) {
  constexpr int kChunks = 5;
  test::Shared<float> in(kChunks * 128), out(128);
  for (int i = 0; i < kChunks * 128; ++i) in[i] = static_cast<float>(i);
  REQUIRE_EQ(test::run_kernel(sum_chunks, {.block = 128}, seed, out.data(), in.data(), kChunks, bug), "");
  for (int t = 0; t < 128; ++t) {
    float want = 0;
    for (int chunk = 0; chunk < kChunks; ++chunk) want += in[chunk * 128 + 127 - t];
    if (out[t] != want) return false;
  }
  return true;
}

template <int kBytes>
__global__ void copy_part(unsigned char* out, const unsigned char* in, int source_bytes) {
  struct __align__(16) Buffer {
    unsigned char bytes[16];
  };
  GPU_SHARED(Buffer, buffer);
  ptx::cp_async<kBytes>(buffer.bytes, source_bytes > 0 ? in : nullptr, source_bytes);
  ptx::cp_async_wait_all();  // without a commit
  for (int i = 0; i < kBytes; ++i) out[i] = buffer.bytes[i];
}

template <int kBytes>
void check_part() {
  for (const int source_bytes : {0, 1, kBytes / 2, kBytes}) {
    test::Shared<unsigned char> in(16), out(16);
    for (int i = 0; i < 16; ++i) in[i] = static_cast<unsigned char>(i + 1);
    REQUIRE_EQ(test::run_kernel(copy_part<kBytes>, {.block = 1}, 0, out.data(), in.data(), source_bytes), "");
    for (int i = 0; i < kBytes; ++i) CHECK_EQ(out[i], i < source_bytes ? i + 1 : 0);
  }
}

#ifdef TOKENMILL_CUDA_EMULATED
/// Reads after each of three groups has been waited for.
__global__ void wait_in_steps(float* out, const float* in) {
  struct __align__(16) Buffer {
    float values[4];
  };
  GPU_SHARED(Buffer, buffer);
  for (int i = 0; i < 3; ++i) {
    ptx::cp_async<4>(&buffer.values[i], in + i);
    ptx::cp_async_commit();
  }
  ptx::cp_async_wait<2>();
  for (int i = 0; i < 3; ++i) out[i] = buffer.values[i];
  ptx::cp_async_wait<1>();
  for (int i = 0; i < 3; ++i) out[3 + i] = buffer.values[i];
  ptx::cp_async_wait<0>();
  for (int i = 0; i < 3; ++i) out[6 + i] = buffer.values[i];
}

__global__ void never_waits(const float* in) {
  using Buffer = float[4];
  GPU_SHARED(Buffer, buffer);
  ptx::cp_async<16>(buffer, in);
  ptx::cp_async_commit();
}
__global__ void copies_to(void* to, const char* in) { ptx::cp_async<16>(to, in); }
__global__ void copies_from(const char* in) {
  using Buffer = float[4];
  GPU_SHARED(Buffer, buffer);
  ptx::cp_async<16>(buffer, in);
}
#endif

}  // namespace

TEST_CASE("a double-buffered cp.async pipeline adds every chunk" * doctest::skip(test::lacks_capability(80))) {
  for (const uint64_t seed : test::kSeeds) CHECK(sums_are_right(seed, Bug::kNone));
}

TEST_CASE("cp.async fills up with zeros what the source does not give" * doctest::skip(test::lacks_capability(80))) {
  check_part<4>();
  check_part<8>();
  check_part<16>();
}

#ifdef TOKENMILL_CUDA_EMULATED
TEST_CASE("a forgotten wait or barrier of a cp.async pipeline shows in every order" *
          doctest::skip(test::kThreadSanitized)) {
  for (const uint64_t seed : test::kSeeds) {
    CHECK_FALSE(sums_are_right(seed, Bug::kNoWait));
    CHECK_FALSE(sums_are_right(seed, Bug::kNoBarrier));
    CHECK_FALSE(sums_are_right(seed, Bug::kNoBarrierBeforeReuse));
  }
}

TEST_CASE("cp.async groups arrive in order, each when it is waited for") {
  float in[3] = {1, 2, 3}, out[9];
  REQUIRE_EQ(test::run_kernel(wait_in_steps, {.block = 1}, 0, out, in), "");
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < 3; ++i) {
      if (i <= step) CHECK_EQ(out[step * 3 + i], in[i]);
      if (i > step) CHECK(std::isnan(out[step * 3 + i]));
    }
  }
}

TEST_CASE("misuse of cp.async is an error at the copy's line") {
  alignas(16) char in[32] = {};
  const auto failure = [&](const std::string& part, const std::string& error) {
    CHECK_EQ(test::unless_found("async_copy_test.cpp:", error), "");
    CHECK_EQ(test::unless_found(part, error), "");
  };
  failure("exits with 1 cp.async copies that it never waited for",
          test::run_kernel(never_waits, {.block = 1}, 0, reinterpret_cast<float*>(in)));
  failure("cp.async: 16 bytes are not inside one shared array", test::run_kernel(copies_to, {.block = 1}, 0, in, in));
  failure("cp.async: the global address is not a multiple of 16",
          test::run_kernel(copies_from, {.block = 1}, 0, in + 4));
}
#endif
