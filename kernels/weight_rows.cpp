#include "kernels/weight_rows.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill {
namespace {

void check_part(const LinearPart& part, int64_t row_values, const std::string& what, size_t index) {
  const WeightFormatInfo info = weight_format_info(part.format);
  TM_ASSERT(part.row_begin >= 0 && part.row_begin <= part.row_end && part.row_end <= part.source_rows &&
                part.col_begin >= 0 && part.col_begin < part.col_end && part.col_end <= part.source_cols,
            "{}: part {} takes rows [{}, {}) and columns [{}, {}) of a tensor of [{}, {}]", what, index, part.row_begin,
            part.row_end, part.col_begin, part.col_end, part.source_rows, part.source_cols);
  TM_ASSERT(part.col_end - part.col_begin == row_values, "{}: part {} is {} columns wide, the result {}", what, index,
            part.col_end - part.col_begin, row_values);
  TM_ASSERT(part.source_cols % info.block_elements == 0, "{}: part {} has rows of {}, no multiple of {} {} values",
            what, index, part.source_cols, info.block_elements, info.name);
  if (part.row_order == RowOrder::kInterleavedToHalves) {
    TM_ASSERT(part.head_dim > 0 && part.head_dim % 2 == 0 && part.row_begin % part.head_dim == 0 &&
                  part.row_end % part.head_dim == 0,
              "{}: part {} reorders rows [{}, {}) in heads of {}", what, index, part.row_begin, part.row_end,
              part.head_dim);
  }
}

/// The columns of the blocks that hold a part's columns.
struct Blocks {
  int64_t begin, end;
  explicit Blocks(const LinearPart& part) {
    const int64_t size = weight_format_info(part.format).block_elements;
    begin = part.col_begin / size * size;
    end = (part.col_end + size - 1) / size * size;
  }
};

}  // namespace

WeightRows::WeightRows(std::vector<LinearPart> parts, int64_t rows, int64_t row_values, std::string what)
    : parts_(std::move(parts)),
      what_(std::move(what)),
      rows_written_(parts_.size(), 0),
      next_offset_(parts_.size(), 0),
      row_values_(row_values) {
  int64_t total = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    check_part(parts_[i], row_values, what_, i);
    const Blocks blocks(parts_[i]);
    expanded_.resize(std::max(expanded_.size(), static_cast<size_t>(blocks.end - blocks.begin)));
    first_row_.push_back(total);
    total += parts_[i].row_end - parts_[i].row_begin;
  }
  TM_ASSERT(total == rows, "{}: the parts give {} rows, the result has {}", what_, total, rows);
}

int64_t WeightRows::granularity(int part) const {
  const LinearPart& p = parts_.at(static_cast<size_t>(part));
  return weight_row_bytes(p.format, p.source_cols);
}

WeightRows::Chunk WeightRows::accept(int part, int64_t byte_offset, std::span<const std::byte> bytes) {
  TM_ASSERT(part >= 0 && static_cast<size_t>(part) < parts_.size(), "{}: part {} of {}", what_, part, parts_.size());
  const auto index = static_cast<size_t>(part);
  const LinearPart& p = parts_[index];
  const int64_t row_bytes = granularity(part), size = static_cast<int64_t>(bytes.size());
  TM_ASSERT(byte_offset % row_bytes == 0 && size % row_bytes == 0 && byte_offset >= next_offset_[index] &&
                byte_offset + size <= row_bytes * p.source_rows,
            "{}: part {} got bytes [{}, {}) after {}; rows have {} bytes, the tensor {}", what_, part, byte_offset,
            byte_offset + size, next_offset_[index], row_bytes, row_bytes * p.source_rows);
  next_offset_[index] = byte_offset + size;
  const int64_t begin = std::max(byte_offset / row_bytes, p.row_begin);
  const int64_t end = std::max(begin, std::min((byte_offset + size) / row_bytes, p.row_end));
  rows_written_[index] += end - begin;
  return {begin, end};
}

WeightRows::Row WeightRows::expand(int part, int64_t source_row, int64_t byte_offset,
                                   std::span<const std::byte> bytes) {
  const LinearPart& p = parts_[static_cast<size_t>(part)];
  const Blocks blocks(p);
  const int64_t offset = source_row * granularity(part) - byte_offset + weight_row_bytes(p.format, blocks.begin);
  dequantize_row(p.format, bytes.data() + offset, blocks.end - blocks.begin, expanded_.data());
  int64_t row = source_row - p.row_begin;
  if (p.row_order == RowOrder::kInterleavedToHalves) {
    const int64_t head = row / p.head_dim, inside = row % p.head_dim;
    row = head * p.head_dim + inside / 2 + (inside % 2) * (p.head_dim / 2);
  }
  const auto values = std::span<const float>(expanded_).subspan(static_cast<size_t>(p.col_begin - blocks.begin),
                                                                static_cast<size_t>(row_values_));
  return {first_row_[static_cast<size_t>(part)] + row, values};
}

void WeightRows::check_complete() const {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const int64_t rows = parts_[i].row_end - parts_[i].row_begin;
    TM_ASSERT(rows_written_[i] == rows, "{}: part {} got {} of its {} rows", what_, i, rows_written_[i], rows);
  }
}

void store_rounded(void* out, DType dtype, std::span<const float> values) {
  switch (dtype) {
    case DType::kF32:
      std::ranges::copy(values, static_cast<float*>(out));
      return;
    case DType::kBF16:
      std::ranges::transform(values, static_cast<bf16*>(out), to_bf16);
      return;
    case DType::kF16:
      std::ranges::transform(values, static_cast<f16*>(out), to_f16);
      return;
    default:
      TM_ASSERT(false, "weights as {}", to_string(dtype));
  }
}

int64_t vector_width(const TensorView& out, const std::vector<LinearPart>& parts) {
  TM_ASSERT(!parts.empty() && parts[0].col_end > parts[0].col_begin, "a vector of no parts");
  const int64_t width = parts[0].col_end - parts[0].col_begin;
  TM_ASSERT(out.contiguous(), "a vector sink into {} with row stride {}", out.describe(), out.row_stride());
  TM_ASSERT(out.num_elements() % width == 0, "rows of {} into {}", width, out.describe());
  return width;
}

}  // namespace tokenmill
