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

/// Device memory with a view over it, and its values on the host: the same memory on the CPU, else a copy that exists
/// once it is asked for. What the host has written counts on the device after upload(), and the other way round after
/// download().
class Tensor {
 public:
  Tensor(Ops& ops, DType dtype, std::initializer_list<int64_t> shape) : ops_(&ops) {
    int64_t count = 1;
    for (const int64_t n : shape) count *= n;
    buffer_ = ops.memory().allocate(std::max<int64_t>(1, count * dtype_size(dtype)));
    view = TensorView(buffer_.data(), dtype, shape);
  }
  /// Values, as rows and columns.
  TensorView host() {
    void* data = buffer_.data();
    if (buffer_.device().kind != DeviceKind::kCpu) {
      if (host_.data() == nullptr) host_ = ops_->memory().allocate_host(buffer_.num_bytes());
      data = host_.data();
    }
    return TensorView(data, view.dtype(), {view.rows(), view.cols()});
  }
  std::span<const std::byte> host_bytes() {
    return {static_cast<const std::byte*>(host().data()), static_cast<size_t>(view.num_bytes())};
  }
  void upload() { copy(view.data(), host().data()); }
  void download() { copy(host().data(), view.data()); }
  double get(int64_t row, int64_t column) {
    const TensorView values = host();
    if (values.dtype() == DType::kF32) return values.row<float>(row)[column];
    return to_float(values.row<bf16>(row)[column]);
  }
  void fill_random(uint64_t seed) {
    // A short sequence over and over: enough for speed and check, quick for large matrices.
    float values[509];
    for (int64_t i = 0; i < 509; ++i) values[i] = static_cast<float>(uniform(seed, i) - 0.5);
    const TensorView out = host();
    for (int64_t r = 0, i = 0; r < out.rows(); ++r) {
      for (int64_t c = 0; c < out.cols(); ++c, ++i) {
        if (out.dtype() == DType::kF32) {
          out.row<float>(r)[c] = values[i % 509];
        } else {
          out.row<bf16>(r)[c] = to_bf16(values[i % 509]);
        }
      }
    }
    upload();
  }
  TensorView view;

 private:
  void copy(void* to, const void* from) const {
    if (to != from) ops_->stream().copy(to, from, view.num_bytes());
    ops_->stream().synchronize();
  }
  Ops* ops_;
  Buffer buffer_, host_;
};

/// Runs work until the time is over, at least three times. On a GPU one time is the mean of as many launches as take a
/// millisecond, so that the wait behind them does not count.
inline void time(Result& result, double seconds, Ops& ops, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const auto ms_of = [&](int64_t count) {
    const auto begin = Clock::now();
    for (int64_t i = 0; i < count; ++i) work();
    ops.stream().synchronize();
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count() / static_cast<double>(count);
  };
  const bool is_gpu = ops.device().kind == DeviceKind::kCuda;
  constexpr int64_t kMostLaunches = 1000;
  const int64_t launches = is_gpu ? std::clamp<int64_t>(std::llround(1 / ms_of(1)), 1, kMostLaunches) : 1;
  std::vector<double> times;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (times.size() < 3 || Clock::now() < end) times.push_back(ms_of(launches));
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
