// The machine's limits: FMA chains that never leave registers, streams over memory far larger than the caches.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bench/limits.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/simd-inl.h"

namespace tokenmill::cpu {
#ifndef TOKENMILL_BENCH_LIMIT_TABLE
#define TOKENMILL_BENCH_LIMIT_TABLE
struct LimitKernels {
  float (*fma)(int64_t iterations);
  int64_t fma_flops;  // of one iteration
  float (*read)(const float* data, int64_t count);
};
#endif
}  // namespace tokenmill::cpu

HWY_BEFORE_NAMESPACE();
namespace tokenmill::cpu::HWY_NAMESPACE {
namespace {

constexpr int kChains = 12;  // latency 4 x 2 units, rounded up

float fma(int64_t iterations) {
  const VecF x = set(0.999f), y = set(0.001f);
  VecF a0 = set(0), a1 = set(1), a2 = set(2), a3 = set(3), a4 = set(4), a5 = set(5), a6 = set(6), a7 = set(7),
       a8 = set(8), a9 = set(9), a10 = set(10), a11 = set(11);
  for (int64_t i = 0; i < iterations; ++i) {
    a0 = hn::MulAdd(a0, x, y);
    a1 = hn::MulAdd(a1, x, y);
    a2 = hn::MulAdd(a2, x, y);
    a3 = hn::MulAdd(a3, x, y);
    a4 = hn::MulAdd(a4, x, y);
    a5 = hn::MulAdd(a5, x, y);
    a6 = hn::MulAdd(a6, x, y);
    a7 = hn::MulAdd(a7, x, y);
    a8 = hn::MulAdd(a8, x, y);
    a9 = hn::MulAdd(a9, x, y);
    a10 = hn::MulAdd(a10, x, y);
    a11 = hn::MulAdd(a11, x, y);
  }
  const VecF b0 = hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), b1 = hn::Add(hn::Add(a4, a5), hn::Add(a6, a7));
  return sum_lanes(hn::Add(hn::Add(b0, b1), hn::Add(hn::Add(a8, a9), hn::Add(a10, a11))));
}

float read(const float* data, int64_t count) {
  VecF sums[4] = {zero(), zero(), zero(), zero()};
  for (int64_t i = 0; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) sums[j] = hn::Add(sums[j], load(data + i + j * kLanes));
  }
  return sum_lanes(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
}

}  // namespace

extern const LimitKernels kLimits;
const LimitKernels kLimits = {fma, int64_t{kChains} * kLanes * 2, read};

}  // namespace tokenmill::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "kernels/bench/bench.h"
#include "kernels/cpu/cpu_memory.h"
#include "kernels/core/check.h"
#include "kernels/cpu/thread_team.h"
#ifdef TOKENMILL_CUDA
#include "kernels/cuda/device_speeds.h"
#endif

namespace tokenmill::bench {
namespace {

/// The bf16 dot instruction: 2 products per 32-bit lane, in 12 chains.
__attribute__((target("avx512f,avx512bf16"))) float bf16_dot(int64_t iterations) {
  __m512 a[12];
  for (int i = 0; i < 12; ++i) a[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512bh x = (__m512bh)_mm512_set1_epi32(0x3c003c00);
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) a[i] = _mm512_dpbf16_ps(a[i], x, x);
  }
  __m512 sum = a[0];
  for (int i = 1; i < 12; ++i) sum = _mm512_add_ps(sum, a[i]);
  return _mm512_reduce_add_ps(sum);
}
constexpr int64_t kBf16DotFlops = 12 * 16 * 4;

/// Work per second: calls run(), which does `work` units, until the time is over; the best call counts.
template <typename Run>
double best_rate(double seconds, double work, Run&& run) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  double best = 0;
  do {
    const auto begin = Clock::now();
    run();
    best = std::max(best, work / std::chrono::duration<double>(Clock::now() - begin).count());
  } while (Clock::now() < end);
  return best;
}

constexpr int64_t kIterations = 200'000;

double flops_rate(cpu::ThreadTeam& team, double seconds, float (*function)(int64_t), int64_t flops) {
  std::vector<float> results(static_cast<size_t>(team.num_threads()) * 16);
  const double work = static_cast<double>(kIterations * flops) * team.num_threads() * 1e-9;
  return best_rate(seconds, work, [&] {
    team.run([&](int thread) { results[static_cast<size_t>(thread) * 16] = function(kIterations); });
  });
}

}  // namespace

#ifdef TOKENMILL_CUDA
namespace {
Limits gpu_limits(Device device) {
  const cuda::DeviceSpeeds speeds = cuda::measure_speeds(device);
  Limits limits;
  limits.f32_gflops_team = speeds.f32_tflops * 1e3;
  limits.bf16_gflops_team = speeds.bf16_tflops * 1e3;
  limits.read_gbps = limits.copy_gbps = speeds.copy_gbps;
  return limits;
}
}  // namespace
#endif

Limits measure_limits(const Ops& ops, const OpsOptions& options, double seconds) {
#ifdef TOKENMILL_CUDA
  if (ops.device().kind == DeviceKind::kCuda) return gpu_limits(ops.device());
#endif
  TM_ASSERT(ops.device().kind == DeviceKind::kCpu);
  const cpu::Isa isa = cpu::choose_isa(options.cpu_isa, cpu::available_isas());
  const cpu::LimitKernels& kernels = isa == cpu::Isa::kAvx2 ? cpu::N_AVX2::kLimits : cpu::N_AVX3::kLimits;
  cpu::ThreadTeam one(1), team(options.num_threads);
  Limits limits;
  limits.num_threads = options.num_threads;
  limits.f32_gflops_core = flops_rate(one, seconds, kernels.fma, kernels.fma_flops);
  limits.f32_gflops_team = flops_rate(team, seconds, kernels.fma, kernels.fma_flops);
  limits.bf16_gflops_team =
      isa == cpu::Isa::kAvx512Bf16 ? flops_rate(team, seconds, bf16_dot, kBf16DotFlops) : limits.f32_gflops_team;
  cpu::CpuMemory memory;
  constexpr int64_t kBytes = int64_t{256} << 20;
  Buffer from = memory.allocate(kBytes), to = memory.allocate(kBytes);
  std::fill(from.bytes().begin(), from.bytes().end(), std::byte{1});
  std::fill(to.bytes().begin(), to.bytes().end(), std::byte{2});
  std::vector<float> sums(static_cast<size_t>(team.num_threads()) * 16);
  limits.read_gbps = best_rate(seconds, kBytes * 1e-9, [&] {
    team.run([&](int thread) {
      const auto share = team.share(kBytes / 4, thread);
      sums[static_cast<size_t>(thread) * 16] =
          kernels.read(static_cast<const float*>(from.data()) + share.begin, share.end - share.begin);
    });
  });
  limits.copy_gbps = best_rate(seconds, 2 * kBytes * 1e-9, [&] {
    team.run([&](int thread) {
      const auto share = team.share(kBytes, thread);
      std::memcpy(to.bytes().data() + share.begin, from.bytes().data() + share.begin,
                  static_cast<size_t>(share.end - share.begin));
    });
  });
  return limits;
}

}  // namespace tokenmill::bench
#endif
