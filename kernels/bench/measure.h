#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <vector>

#include "kernels/bench/bench.h"
#include "kernels/random.h"

/// What every timer is made of.
namespace tokenmill::bench {

/// Device memory with a view over it; values of the CPU device are written in place.
struct Tensor {
  Tensor(Ops& ops, DType dtype, std::initializer_list<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t n : shape) count *= n;
    buffer = ops.memory().allocate(std::max<int64_t>(1, count * dtype_size(dtype)));
    view = TensorView(buffer.data(), dtype, shape);
  }
  double get(int64_t row, int64_t column) const {
    if (view.dtype() == DType::kF32) return view.row<float>(row)[column];
    return to_float(view.row<bf16>(row)[column]);
  }
  void fill_random(uint64_t seed) const {
    // A short sequence over and over: enough for speed and check, quick for large matrices.
    float values[509];
    for (int64_t i = 0; i < 509; ++i) values[i] = static_cast<float>(uniform(seed, i) - 0.5);
    for (int64_t r = 0, i = 0; r < view.rows(); ++r) {
      for (int64_t c = 0; c < view.cols(); ++c, ++i) {
        if (view.dtype() == DType::kF32) {
          view.row<float>(r)[c] = values[i % 509];
        } else {
          view.row<bf16>(r)[c] = to_bf16(values[i % 509]);
        }
      }
    }
  }
  Buffer buffer;
  TensorView view;
};

/// Runs work until the time is over, at least three times.
inline void time(Result& result, double seconds, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (times.size() < 3 || Clock::now() < end) {
    const auto begin = Clock::now();
    work();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  result.repeats = static_cast<int64_t>(times.size());
  result.ms = times.front();
  result.median_ms = times[times.size() / 2];
}

/// gflops and gbps with their shares of the limits, from the operations and bytes of one repeat.
inline void rate(Result& result, const Limits& limits, double flops, double bytes) {
  result.gflops = flops / result.ms * 1e-6;
  result.gbps = bytes / result.ms * 1e-6;
  result.compute_share =
      result.gflops / (result.dtype == DType::kF32 ? limits.f32_gflops_team : limits.bf16_gflops_team);
  result.memory_share = result.gbps / limits.read_gbps;
}

/// Compares sampled elements with their f64 value and keeps the largest error.
class Checker {
 public:
  explicit Checker(Result& result) : result_(result) {}
  void check(double got, double want, double scale) {
    const double error = std::abs(got - want) / scale;
    const double allowed = result_.dtype == DType::kF32 ? 1e-4 : 1.0 / 64;
    if (!(error <= allowed)) {
      throw Error(ErrorKind::kInternal, "{} {} {}: got {}, the f64 reference gives {}", result_.family,
                  to_string(result_.dtype), result_.shape, got, want);
    }
    result_.max_error = std::max(result_.max_error, error);
  }

 private:
  Result& result_;
};

constexpr int kSamples = 64;  ///< elements that a check compares

}  // namespace tokenmill::bench
