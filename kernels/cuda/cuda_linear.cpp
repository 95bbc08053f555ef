#include "kernels/cuda/cuda_linear.h"

#include "kernels/core/check.h"

namespace tokenmill::cuda {
namespace {

constexpr size_t kPendingBytes = size_t{1} << 20;

class VectorSink final : public WeightSink {
 public:
  VectorSink(WeightUpload& upload, TensorView out, const std::vector<LinearPart>& parts, int64_t width)
      : rows_(upload, parts, static_cast<std::byte*>(out.data()), out.dtype(), out.num_elements() / width, width,
              "vector") {}
  int64_t granularity(int part) const override { return rows_.granularity(part); }
  void write(int part, int64_t byte_offset, std::span<const std::byte> bytes) override {
    rows_.write(part, byte_offset, bytes);
  }
  void finish() override { rows_.finish(); }
  void adopt() override {}

 private:
  DeviceRows rows_;
};

}  // namespace

DeviceRows::DeviceRows(WeightUpload& upload, std::vector<LinearPart> parts, std::byte* data, DType dtype, int64_t rows,
                       int64_t width, std::string what)
    : upload_(upload),
      rows_(std::move(parts), rows, width, std::move(what)),
      data_(data),
      dtype_(dtype),
      row_bytes_(width * dtype_size(dtype)) {}

void DeviceRows::write(int part, int64_t byte_offset, std::span<const std::byte> bytes) {
  rows_.write(part, byte_offset, bytes, [this](const WeightRows::Row& row) { append(row); });
}

void DeviceRows::append(const WeightRows::Row& row) {
  const int64_t next = first_pending_ + static_cast<int64_t>(pending_.size()) / row_bytes_;
  if (row.row != next || pending_.size() >= kPendingBytes) flush();
  if (pending_.empty()) first_pending_ = row.row;
  pending_.resize(pending_.size() + static_cast<size_t>(row_bytes_));
  store_rounded(pending_.data() + pending_.size() - row_bytes_, dtype_, row.values);
}

void DeviceRows::flush() {
  upload_.copy(data_ + first_pending_ * row_bytes_, pending_);
  pending_.clear();
}

void DeviceRows::finish() {
  rows_.check_complete();
  flush();
  upload_.drain();
  pending_ = {};
}

std::unique_ptr<WeightSink> make_vector_sink(WeightUpload& upload, TensorView out,
                                             const std::vector<LinearPart>& parts) {
  return std::make_unique<VectorSink>(upload, out, parts, vector_width(out, parts));
}

TensorView device_matrix(const Linear& linear) {
  const auto* own = dynamic_cast<const DeviceMatrix<Linear>*>(&linear);
  TM_ASSERT(own != nullptr, "a linear of another device");
  return own->matrix();
}

TensorView device_matrix(const Embedding& embedding) {
  const auto* own = dynamic_cast<const DeviceMatrix<Embedding>*>(&embedding);
  TM_ASSERT(own != nullptr, "an embedding of another device");
  return own->matrix();
}

}  // namespace tokenmill::cuda
