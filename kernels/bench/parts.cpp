#include <fmt/format.h>

#include <cmath>

#include "kernels/bench/measure.h"

namespace tokenmill::bench {

Result bench_parts(Ops& ops, const Limits& limits, const PartsShape& s, double seconds) {
  Result result{.family = s.with_norm ? "parts_norm" : "parts_sum",
                .shape = fmt::format("{} parts of {} x {}", s.num_parts, s.rows, s.hidden_size),
                .dtype = s.dtype};
  Tensor parts(ops, DType::kF32, {s.num_parts, s.rows, s.hidden_size}), weight(ops, s.dtype, {s.hidden_size}),
      hidden(ops, s.dtype, {s.rows, s.hidden_size}), out(ops, s.dtype, {s.rows, s.hidden_size});
  parts.fill_random(1);
  weight.fill_random(2);
  const auto work = [&] {
    if (s.with_norm) {
      ops.add_parts_rms_norm(out.view, hidden.view, parts.view, {}, weight.view, 1e-5f);
    } else {
      ops.sum_parts(out.view, parts.view);
    }
  };
  work();
  out.download();
  hidden.download();
  Checker checker(result);
  for (int i = 0; i < kSamples; ++i) {
    const auto r = static_cast<int64_t>(uniform(3, i) * static_cast<double>(s.rows));
    const auto c = static_cast<int64_t>(uniform(4, i) * static_cast<double>(s.hidden_size));
    double sum = 0, size = 0;
    for (int64_t p = 0; p < s.num_parts; ++p) {
      const double x = parts.get(p * s.rows + r, c);
      sum += x;
      size += std::abs(x);
    }
    // hidden was zero: the first sum is all that it holds.
    checker.check((s.with_norm ? hidden : out).get(r, c), sum, std::max(size, 0.01));
    if (!s.with_norm) continue;
    double squares = 0;
    for (int64_t k = 0; k < s.hidden_size; ++k) squares += hidden.get(r, k) * hidden.get(r, k);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(s.hidden_size) + 1e-5);
    const double want = hidden.get(r, c) * scale * weight.get(0, c);
    checker.check(out.get(r, c), want, std::max(std::abs(want), 0.05));
  }
  time(result, seconds, ops, work);
  const int64_t elements = s.rows * s.hidden_size, written = s.with_norm ? 3 : 1;  // hidden in and out, and out
  rate(result, limits, static_cast<double>(s.num_parts * elements),
       static_cast<double>(elements * (s.num_parts * 4 + written * dtype_size(s.dtype))));
  return result;
}

std::vector<PartsShape> default_parts_shapes() {
  std::vector<PartsShape> shapes;
  for (const bool with_norm : {false, true}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t num_parts : {2, 4}) {
        for (const int64_t rows : {1, 32, 512}) shapes.push_back({num_parts, rows, 4096, dtype, with_norm});
      }
    }
  }
  return shapes;
}

}  // namespace tokenmill::bench
