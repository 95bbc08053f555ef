#include "tests/support/random.h"

#include <cstring>

namespace tokenmill::test {
namespace {
constexpr std::byte kGuard{0xff};  // NaN in every floating-point type
constexpr int64_t kMargin = 64;
}  // namespace

HostTensor::HostTensor(DType dtype, std::initializer_list<int64_t> shape, int64_t padding) {
  const int64_t columns = *(shape.end() - 1), element = dtype_size(dtype);
  int64_t rows = 1;
  for (auto it = shape.begin(); it + 1 != shape.end(); ++it) rows *= *it;
  const int64_t stride = columns + padding;
  storage_.assign(static_cast<size_t>((rows * stride) * element + 2 * kMargin), kGuard);
  offset_ = kMargin;
  view_ = TensorView(storage_.data() + offset_, dtype, shape, true, shape.size() > 1 ? stride : columns);
}

double HostTensor::get_at(const TensorView& view, int64_t row, int64_t column) {
  const int64_t i = row * view.row_stride() + column;
  switch (view.dtype()) {
    case DType::kF32:
      return view.as<float>()[i];
    case DType::kBF16:
      return to_float(view.as<bf16>()[i]);
    case DType::kF16:
      return to_float(view.as<f16>()[i]);
    case DType::kI32:
      return view.as<int32_t>()[i];
    case DType::kI64:
      return static_cast<double>(view.as<int64_t>()[i]);
    case DType::kU8:
      return view.as<uint8_t>()[i];
  }
  return 0;
}

void HostTensor::set_at(const TensorView& view, int64_t row, int64_t column, double value) {
  const int64_t i = row * view.row_stride() + column;
  switch (view.dtype()) {
    case DType::kF32:
      view.as<float>()[i] = static_cast<float>(value);
      break;
    case DType::kBF16:
      view.as<bf16>()[i] = to_bf16(static_cast<float>(value));
      break;
    case DType::kF16:
      view.as<f16>()[i] = to_f16(static_cast<float>(value));
      break;
    case DType::kI32:
      view.as<int32_t>()[i] = static_cast<int32_t>(value);
      break;
    case DType::kI64:
      view.as<int64_t>()[i] = static_cast<int64_t>(value);
      break;
    case DType::kU8:
      view.as<uint8_t>()[i] = static_cast<uint8_t>(value);
      break;
  }
}

std::vector<double> HostTensor::values() const {
  std::vector<double> out;
  for (int64_t r = 0; r < view_.rows(); ++r) {
    for (int64_t c = 0; c < view_.cols(); ++c) out.push_back(get(r, c));
  }
  return out;
}

std::vector<std::byte> HostTensor::bytes() const {
  std::vector<std::byte> out;
  const int64_t element = dtype_size(view_.dtype());
  for (int64_t r = 0; r < view_.rows(); ++r) {
    const auto* row = static_cast<const std::byte*>(view_.data()) + r * view_.row_stride() * element;
    out.insert(out.end(), row, row + view_.cols() * element);
  }
  return out;
}

bool HostTensor::gaps_intact() const {
  const int64_t element = dtype_size(view_.dtype()), row_bytes = view_.cols() * element;
  const int64_t stride = view_.row_stride() * element;
  for (int64_t i = 0; i < static_cast<int64_t>(storage_.size()); ++i) {
    const int64_t inside = i - offset_, row = stride > 0 ? inside / stride : 0;
    if (inside >= 0 && row < view_.rows() && inside % stride < row_bytes) continue;
    if (storage_[static_cast<size_t>(i)] != kGuard) return false;
  }
  return true;
}

HostTensor& HostTensor::fill_random(Random& random, double low, double high) {
  for (int64_t r = 0; r < view_.rows(); ++r) {
    for (int64_t c = 0; c < view_.cols(); ++c) set(r, c, random.uniform(low, high));
  }
  return *this;
}

HostTensor& HostTensor::fill(double value) {
  for (int64_t r = 0; r < view_.rows(); ++r) {
    for (int64_t c = 0; c < view_.cols(); ++c) set(r, c, value);
  }
  return *this;
}

}  // namespace tokenmill::test
