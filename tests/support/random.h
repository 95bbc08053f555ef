#pragma once
#include <cstdint>
#include <vector>

#include "kernels/core/tensor.h"
#include "kernels/random.h"
#include "tests/support/visible_memory.h"

namespace tokenmill::test {

/// Deterministic test values: the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  double uniform() { return tokenmill::uniform(seed_, next_++); }
  /// In [low, high).
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// In [0, count).
  int64_t index(int64_t count) { return static_cast<int64_t>(uniform() * static_cast<double>(count)); }

 private:
  uint64_t seed_;
  int64_t next_ = 0;
};

/// A tensor that host and device reach and that owns its memory: rows `padding` elements further apart than they are wide, guard values (NaN) in
/// the gaps and around, so that a read or write outside shows.
class HostTensor {
 public:
  HostTensor(DType dtype, std::initializer_list<int64_t> shape, int64_t padding = 0);
  HostTensor(const HostTensor&) = delete;  // a copy's view would point into the original
  HostTensor(HostTensor&&) = default;
  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }
  /// Element of row i, widened.
  double get(int64_t row, int64_t column) const { return get_at(view_, row, column); }
  void set(int64_t row, int64_t column, double value) { set_at(view_, row, column, value); }
  static double get_at(const TensorView& view, int64_t row, int64_t column);
  static void set_at(const TensorView& view, int64_t row, int64_t column, double value);
  /// All values, row after row, widened.
  std::vector<double> values() const;
  /// The bytes of the rows without the gaps: for bitwise comparison.
  std::vector<std::byte> bytes() const;
  /// Whether the gaps between and around the rows still hold the guard pattern.
  bool gaps_intact() const;
  HostTensor& fill_random(Random& random, double low = -1, double high = 1);
  HostTensor& fill(double value);

 private:
  VisibleVector<std::byte> storage_;
  int64_t offset_ = 0;
  TensorView view_;
};

}  // namespace tokenmill::test
