#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/core/tensor.h"
#include "kernels/linear.h"

namespace tokenmill {

/// The host half of every WeightSink: turns pushed bytes of source tensors into f32 rows of the stacked result, undoing
/// slices and row orders. Rows come out in ascending source order per part; the same for every device.
class WeightRows {
 public:
  /// A row of the result: `row` counts over all parts. Valid during the callback only.
  struct Row {
    int64_t row;
    std::span<const float> values;
  };

  /// Checks the parts: each slice inside its source, every part `row_values` columns wide, the selected rows adding up
  /// to `rows`, row orders at whole heads. Columns may be cut anywhere, inside a block of a block format too. Throws
  /// Error(kInternal) starting with `what`.
  WeightRows(std::vector<LinearPart> parts, int64_t rows, int64_t row_values, std::string what);

  int64_t granularity(int part) const;
  /// As WeightSink::write; calls consume(Row) for each row of the slice that `bytes` completes.
  template <typename Consume>
  void write(int part, int64_t byte_offset, std::span<const std::byte> bytes, Consume&& consume) {
    const Chunk chunk = accept(part, byte_offset, bytes);
    for (int64_t row = chunk.begin; row < chunk.end; ++row) consume(expand(part, row, byte_offset, bytes));
  }
  /// Throws Error(kInternal) naming the part and the rows that never came.
  void check_complete() const;

 private:
  struct Chunk {
    int64_t begin, end;  // source rows inside the slice
  };
  Chunk accept(int part, int64_t byte_offset, std::span<const std::byte> bytes);
  Row expand(int part, int64_t source_row, int64_t byte_offset, std::span<const std::byte> bytes);

  std::vector<LinearPart> parts_;
  std::string what_;
  std::vector<int64_t> first_row_;     // of each part in the result
  std::vector<int64_t> rows_written_;  // of each part's slice
  std::vector<int64_t> next_offset_;   // bytes of each source tensor seen so far
  int64_t row_values_;
  std::vector<float> expanded_;  // a row of whole blocks
};

/// out[i] = values[i] rounded to dtype (float32, bfloat16, float16), in host memory.
void store_rounded(void* out, DType dtype, std::span<const float> values);

/// The columns of the parts of a vector sink (Ops::make_vector_sink) into out. Throws Error(kInternal) when out is not
/// made of whole rows of them.
int64_t vector_width(const TensorView& out, const std::vector<LinearPart>& parts);

}  // namespace tokenmill
