#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/core/dtype.h"
#include "kernels/cpu/scratch.h"

namespace tokenmill::cpu {

/// out[rows, columns] f32 = a[rows, k_count] * B[k_count, columns] by oneDNN, on the calling thread alone. The only
/// user of oneDNN's API (2.6, `matmul::desc`). B lies in the layout oneDNN asked for; any of B's elements can be
/// written without oneDNN, since the place of (k, column) is k_offset(k) + column_offset(column). One thread at a time.
class OnednnMatmul {
 public:
  /// required_impl: part of the implementation name that every product must have ("brg": the family whose bits do not
  /// depend on the number of rows); empty accepts any. Throws Error(kDevice) when oneDNN offers another.
  OnednnMatmul(DType dtype, int64_t columns, int64_t k_count, std::string required_impl);
  ~OnednnMatmul();
  OnednnMatmul(const OnednnMatmul&) = delete;
  OnednnMatmul& operator=(const OnednnMatmul&) = delete;

  int64_t packed_bytes() const { return packed_bytes_; }
  /// One entry per k and column, padding of the layout included (its elements must be zero).
  const std::vector<int64_t>& k_offsets() const { return k_offsets_; }
  const std::vector<int64_t>& column_offsets() const { return column_offsets_; }

  /// Rows of a are lda elements apart, rows of out ldo. Primitives are made at first use and kept per (rows, lda, ldo).
  void run(int64_t rows, const void* a, int64_t lda, const std::byte* packed, float* out, int64_t ldo,
           Scratch& scratch);
  /// Implementation name of the last product: for tests and messages.
  const std::string& impl() const { return impl_; }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_data_;
  std::string required_impl_, impl_;
  int64_t packed_bytes_ = 0;
  std::vector<int64_t> k_offsets_, column_offsets_;
};

/// "2.6.3": layouts may differ between versions.
std::string onednn_version();

}  // namespace tokenmill::cpu
