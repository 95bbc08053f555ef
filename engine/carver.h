#pragma once
#include <cstdint>
#include <initializer_list>

#include "kernels/core/tensor.h"

namespace tokenmill {

/// Bytes that a buffer's part takes when the next one is to be 64-byte aligned.
constexpr int64_t carved_bytes(int64_t num_bytes) { return (num_bytes + 63) / 64 * 64; }

/// Hands out views one after the other over one piece of memory, each 64-byte aligned.
class Carver {
 public:
  /// base null: it only counts. is_host: the host can read the memory.
  Carver(void* base, bool is_host) : base_(static_cast<char*>(base)), is_host_(is_host) {}

  TensorView take(DType dtype, std::initializer_list<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t n : shape) count *= n;
    const TensorView view(base_ == nullptr ? nullptr : base_ + num_bytes_, dtype, shape, is_host_);
    num_bytes_ += carved_bytes(count * dtype_size(dtype));
    return view;
  }
  int64_t num_bytes() const { return num_bytes_; }

 private:
  char* base_;
  bool is_host_;
  int64_t num_bytes_ = 0;
};

}  // namespace tokenmill
