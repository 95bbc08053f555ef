#include "io/tensor_index.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "io/utf8.h"
#include "kernels/core/check.h"
#include "kernels/core/error.h"

namespace tokenmill::io {

int64_t TensorInfo::num_elements() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

TensorIndex::TensorIndex(std::vector<std::string> files, std::vector<TensorInfo> tensors)
    : files_(std::move(files)), tensors_(std::move(tensors)) {
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.file_index, a.offset, a.bytes, a.name) < std::tie(b.file_index, b.offset, b.bytes, b.name);
  });
  by_name_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const TensorInfo& tensor = tensors_[i];
    TM_ASSERT(tensor.file_index >= 0 && static_cast<size_t>(tensor.file_index) < files_.size());
    const auto [first, is_new] = by_name_.emplace(tensor.name, i);
    if (is_new) continue;
    const std::string& other = file_of(tensors_[first->second]);
    throw Error(ErrorKind::kIo, "{}: tensor {} occurs twice{}; each tensor must be stored once", file_of(tensor),
                excerpt(tensor.name), other == file_of(tensor) ? "" : fmt::format(", it is in {} too", other));
  }
}

const TensorInfo* TensorIndex::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const TensorInfo& TensorIndex::at(const std::string& name) const {
  if (const TensorInfo* tensor = find(name)) return *tensor;
  const std::string where = files_.empty() ? "the checkpoint" : files_.front();
  throw Error(ErrorKind::kIo, "{}{}: tensor {} is missing", where,
              files_.size() > 1 ? fmt::format(" and {} more files", files_.size() - 1) : "", excerpt(name));
}

WeightFormat TensorIndex::format_of(const TensorInfo& tensor) const {
  if (tensor.format) return *tensor.format;
  throw Error(
      ErrorKind::kConfig,
      "{}: tensor {} has type {}; weights can be F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K",
      file_of(tensor), excerpt(tensor.name), tensor.type_name);
}

int64_t TensorIndex::total_bytes() const {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : tensors_) bytes += tensor.bytes;
  return bytes;
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::optional<int64_t> tensor_bytes(const std::vector<int64_t>& shape, int64_t block_elements, int64_t block_bits) {
  int64_t count = 1;
  for (const int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count)) return std::nullopt;
  const int64_t row = shape.empty() ? 1 : shape.back();
  int64_t bits = 0;
  if (row % block_elements != 0 || __builtin_mul_overflow(count / block_elements, block_bits, &bits) || bits % 8 != 0)
    return std::nullopt;
  return bits / 8;
}

}  // namespace tokenmill::io
