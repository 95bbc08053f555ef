#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/core/check.h"
#include "kernels/core/dtype.h"

namespace tokenmill {

/// A view of device memory: rank 1 to 4, row-major, the last dimension contiguous, rows row_stride elements apart
/// (a slice of a fused QKV has row_stride > cols). Dimensions before the last two are dense in units of whole rows.
/// Never owns. Which device the memory belongs to is the business of whoever made the view; is_host() tells host code
/// whether it may dereference.
class TensorView {
 public:
  TensorView() = default;
  /// row_stride -1: equal to the last dimension.
  TensorView(void* data, DType dtype, std::initializer_list<int64_t> shape, bool is_host = true, int64_t row_stride = -1)
      : data_(data), dtype_(dtype), is_host_(is_host), rank_(static_cast<int>(shape.size())) {
    TM_ASSERT(rank_ >= 1 && rank_ <= 4);
    int i = 0;
    for (const int64_t n : shape) shape_[i++] = n;
    row_stride_ = row_stride < 0 ? shape_[rank_ - 1] : row_stride;
    TM_ASSERT(row_stride_ >= shape_[rank_ - 1]);
  }
  bool empty() const { return rank_ == 0 || num_elements() == 0; }
  bool defined() const { return rank_ != 0; }
  int rank() const { return rank_; }
  int64_t size(int dimension) const { return shape_[dimension]; }
  int64_t cols() const { return shape_[rank_ - 1]; }
  /// Product of all dimensions but the last; 1 for rank 1.
  int64_t rows() const {
    int64_t n = 1;
    for (int i = 0; i + 1 < rank_; ++i) n *= shape_[i];
    return n;
  }
  int64_t num_elements() const { return rows() * cols(); }
  int64_t num_bytes() const { return num_elements() * dtype_size(dtype_); }  ///< of the elements, without gaps
  int64_t row_stride() const { return row_stride_; }  ///< in elements
  bool contiguous() const { return row_stride_ == cols() || rows() <= 1; }
  DType dtype() const { return dtype_; }
  bool is_host() const { return is_host_; }
  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    TM_DEBUG_ASSERT(dtype_of<T>::value == dtype_);
    return static_cast<T*>(data_);
  }
  template <typename T>
  T* row(int64_t i) const {
    return as<T>() + i * row_stride_;
  }
  /// Rows [begin, begin + count) of a rank-2 view (elements of a rank-1 view).
  TensorView slice_rows(int64_t begin, int64_t count) const;
  /// Columns [begin, begin + count) of a view of rank >= 2; the row stride stays.
  TensorView slice_cols(int64_t begin, int64_t count) const;
  /// "bfloat16 [2, 9]": for error messages.
  std::string describe() const;

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  bool is_host_ = true;
  int rank_ = 0;
  std::array<int64_t, 4> shape_{};
  int64_t row_stride_ = 0;
};

}  // namespace tokenmill
