#include "kernels/core/tensor.h"

#include <fmt/format.h>

namespace tokenmill {

TensorView TensorView::slice_rows(int64_t begin, int64_t count) const {
  TM_ASSERT(rank_ <= 2 && begin >= 0 && count >= 0);
  TensorView out = *this;
  const int64_t unit = rank_ == 1 ? 1 : row_stride_;
  TM_ASSERT(begin + count <= shape_[0], "rows [{}, {}) of {}", begin, begin + count, describe());
  out.data_ = static_cast<char*>(data_) + begin * unit * dtype_size(dtype_);
  out.shape_[0] = count;
  if (rank_ == 1) out.row_stride_ = count;
  return out;
}

TensorView TensorView::slice_cols(int64_t begin, int64_t count) const {
  TM_ASSERT(rank_ >= 2 && begin >= 0 && count >= 0 && begin + count <= cols(), "columns [{}, {}) of {}", begin,
            begin + count, describe());
  TensorView out = *this;
  out.data_ = static_cast<char*>(data_) + begin * dtype_size(dtype_);
  out.shape_[rank_ - 1] = count;
  return out;
}

std::string TensorView::describe() const {
  std::string text(to_string(dtype_));
  text += " [";
  for (int i = 0; i < rank_; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", shape_[i]);
  return text + "]";
}

}  // namespace tokenmill
