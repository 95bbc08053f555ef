#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/core/tensor.h"
#include "kernels/cuda/weight_upload.h"
#include "kernels/linear.h"
#include "kernels/weight_rows.h"

namespace tokenmill::cuda {

/// Takes the rows that a WeightSink's sources make, rounds them to a dtype and carries them to dense device memory,
/// many rows at a time.
class DeviceRows {
 public:
  /// rows x width elements of dtype at data. what: for errors.
  DeviceRows(WeightUpload& upload, std::vector<LinearPart> parts, std::byte* data, DType dtype, int64_t rows,
             int64_t width, std::string what);
  int64_t granularity(int part) const { return rows_.granularity(part); }
  void write(int part, int64_t byte_offset, std::span<const std::byte> bytes);
  /// After the last write: all rows have come, and have arrived.
  void finish();

 private:
  void append(const WeightRows::Row& row);
  void flush();

  WeightUpload& upload_;
  WeightRows rows_;
  std::byte* data_;
  DType dtype_;
  int64_t row_bytes_;
  std::vector<std::byte> pending_;  // whole rows from first_pending_ on
  int64_t first_pending_ = 0;
};

/// A matrix [out_features, in_features] of compute_dtype in device memory, rows dense. Sink: Linear or Embedding.
template <typename Sink>
class DeviceMatrix : public Sink {
 public:
  /// what: for errors.
  DeviceMatrix(WeightUpload& upload, const LinearSpec& spec, std::span<std::byte> storage, const char* what)
      : spec_(spec),
        data_(storage.data()),
        rows_(upload, spec.parts, data_, spec.compute_dtype, spec.out_features, spec.in_features, what) {}
  const LinearSpec& spec() const override { return spec_; }
  int64_t granularity(int part) const override { return rows_.granularity(part); }
  void write(int part, int64_t byte_offset, std::span<const std::byte> bytes) override {
    rows_.write(part, byte_offset, bytes);
  }
  void finish() override { rows_.finish(); }
  void adopt() override {}
  TensorView matrix() const {
    return TensorView(data_, spec_.compute_dtype, {spec_.out_features, spec_.in_features}, /*is_host=*/false);
  }

 private:
  LinearSpec spec_;
  std::byte* data_;
  DeviceRows rows_;
};

std::unique_ptr<WeightSink> make_vector_sink(WeightUpload& upload, TensorView out, const std::vector<LinearPart>& parts);

/// The matrix behind weights of this device. Throws Error(kInternal) for those of another one.
TensorView device_matrix(const Linear& linear);
TensorView device_matrix(const Embedding& embedding);

}  // namespace tokenmill::cuda
