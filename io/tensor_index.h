#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/core/weight_format.h"

namespace tokenmill::io {

/// One tensor as its file describes it. Every number here has been checked: the bytes lie inside the file, their count
/// follows from shape and type, and no two tensors share a byte.
struct TensorInfo {
  std::string name;
  std::string type_name;               ///< the file's word: "BF16", "Q4_K", "F8_E4M3", "I64", ...
  std::optional<WeightFormat> format;  ///< absent: can be listed, cannot be loaded as a weight
  std::vector<int64_t> shape;          ///< row-major, outermost first ([rows, cols] for a matrix); empty for a scalar
  int32_t file_index = 0;              ///< into TensorIndex::files()
  int64_t offset = 0;                  ///< of the first byte in that file
  int64_t bytes = 0;

  int64_t num_elements() const;
};

/// The tensors of one checkpoint, of one file or many, in order of (file, offset): the order to read them in.
class TensorIndex {
 public:
  TensorIndex() = default;
  /// Sorts the tensors. Throws Error(kIo) naming both files when a name occurs twice.
  TensorIndex(std::vector<std::string> files, std::vector<TensorInfo> tensors);

  const std::vector<std::string>& files() const { return files_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// nullptr when there is no such tensor.
  const TensorInfo* find(const std::string& name) const;
  /// Throws Error(kIo) naming the tensor and the files that lack it.
  const TensorInfo& at(const std::string& name) const;
  const std::string& file_of(const TensorInfo& tensor) const { return files_[static_cast<size_t>(tensor.file_index)]; }
  /// The tensor's format; throws Error(kConfig) naming file, tensor, type and the loadable types when it has none.
  WeightFormat format_of(const TensorInfo& tensor) const;
  int64_t total_bytes() const;

 private:
  std::vector<std::string> files_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t> by_name_;
};

/// Shapes with more dimensions are refused by both readers.
inline constexpr size_t kMaxTensorDims = 8;

/// "[8192, 4096]".
std::string shape_text(const std::vector<int64_t>& shape);

/// Bytes of a tensor whose elements come in blocks along its last dimension: product(shape) / block_elements *
/// block_bits / 8. Empty when that overflows int64, is no whole number of bytes, or when the row is no multiple of
/// block_elements.
std::optional<int64_t> tensor_bytes(const std::vector<int64_t>& shape, int64_t block_elements, int64_t block_bits);

}  // namespace tokenmill::io
