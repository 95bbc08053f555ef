#include "kernels/cuda/cuda_linear.h"

#include <cstring>

#include "kernels/core/check.h"

namespace tokenmill::cuda {
namespace {

constexpr size_t kPendingBytes = size_t{1} << 20;

void round_row(std::byte* out, DType dtype, std::span<const float> values) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, values.data(), values.size_bytes());
      return;
    case DType::kBF16:
      for (size_t i = 0; i < values.size(); ++i) reinterpret_cast<bf16*>(out)[i] = to_bf16(values[i]);
      return;
    case DType::kF16:
      for (size_t i = 0; i < values.size(); ++i) reinterpret_cast<f16*>(out)[i] = to_f16(values[i]);
      return;
    default:
      TM_ASSERT(false, "weights as {}", to_string(dtype));
  }
}

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
  round_row(pending_.data() + pending_.size() - row_bytes_, dtype_, row.values);
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

CudaLinear::CudaLinear(WeightUpload& upload, const LinearSpec& spec, std::span<std::byte> storage)
    : spec_(spec),
      data_(storage.data()),
      rows_(upload, spec.parts, storage.data(), spec.compute_dtype, spec.out_features, spec.in_features, "linear") {}

CudaEmbedding::CudaEmbedding(WeightUpload& upload, const LinearSpec& spec, std::span<std::byte> storage)
    : spec_(spec),
      data_(storage.data()),
      rows_(upload, spec.parts, storage.data(), spec.compute_dtype, spec.out_features, spec.in_features, "embedding") {}

TensorView CudaEmbedding::table() const {
  return TensorView(data_, spec_.compute_dtype, {spec_.out_features, spec_.in_features}, /*is_host=*/false);
}

std::unique_ptr<WeightSink> make_vector_sink(WeightUpload& upload, TensorView out,
                                             const std::vector<LinearPart>& parts) {
  TM_ASSERT(!parts.empty() && parts[0].col_end > parts[0].col_begin, "a vector of no parts");
  const int64_t width = parts[0].col_end - parts[0].col_begin;
  TM_ASSERT(out.contiguous() && out.num_elements() % width == 0, "rows of {} into {} with row stride {}", width,
            out.describe(), out.row_stride());
  return std::make_unique<VectorSink>(upload, out, parts, width);
}

const CudaLinear& cuda_linear(const Linear& linear) {
  const auto* own = dynamic_cast<const CudaLinear*>(&linear);
  TM_ASSERT(own != nullptr, "a linear of another device");
  return *own;
}

const CudaEmbedding& cuda_embedding(const Embedding& embedding) {
  const auto* own = dynamic_cast<const CudaEmbedding*>(&embedding);
  TM_ASSERT(own != nullptr, "an embedding of another device");
  return *own;
}

}  // namespace tokenmill::cuda
