#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/dtype.h"
#include "kernels/core/weight_format.h"

namespace tokenmill {

/// Where a checkpoint's bytes go. Weights are pushed: the loader streams each tensor once, in any chunk size that is a
/// multiple of granularity(part), in ascending offsets per part; nothing is pulled.
class WeightSink {
 public:
  virtual ~WeightSink() = default;
  /// Bytes [byte_offset, byte_offset + bytes.size()) of the *source tensor* of that part. Bytes outside the part's slice
  /// are ignored. May be called from a loader thread; calls are never concurrent for one sink.
  virtual void write(int part, int64_t byte_offset, std::span<const std::byte> bytes) = 0;
  /// Chunks start and end on multiples of this many bytes of the source tensor (one source row for row formats).
  virtual int64_t granularity(int part) const = 0;
  /// After the last write: packs, releases staging memory. Throws Error(kInternal) when bytes are missing.
  virtual void finish() = 0;
  /// In place of writes and finish(): the storage already holds what finish() left in that of an equal sink, of a backend
  /// with the same Ops::weight_layout(). Runs the same self-tests; changes no byte of the storage.
  virtual void adopt() = 0;
};

/// Order of a q or k projection's rows inside each head.
enum class RowOrder : uint8_t {
  kAsIs,
  kInterleavedToHalves,  ///< GGUF's Llama stores rotary pairs adjacent (2i, 2i+1); undone to (i, i + head_dim/2)
};

/// One source tensor [source_rows, source_cols] of which rows [row_begin, row_end) and columns [col_begin, col_end) form
/// the next rows of the linear (parts are stacked along out_features in order: q, k, v or gate, up).
struct LinearPart {
  WeightFormat format = WeightFormat::kF32;
  int64_t source_rows = 0, source_cols = 0;
  int64_t row_begin = 0, row_end = 0;
  int64_t col_begin = 0, col_end = 0;
  RowOrder row_order = RowOrder::kAsIs;
  int64_t head_dim = 0;  ///< for kInterleavedToHalves
};

/// y[out_features] = W[out_features, in_features] x[in_features]. sum of part rows == out_features; part columns ==
/// in_features. compute_dtype (f32, bf16, f16) is the dtype of activations and of the packed weights.
struct LinearSpec {
  int64_t in_features = 0, out_features = 0;
  DType compute_dtype = DType::kF32;
  std::vector<LinearPart> parts;
};

/// An opaque weight matrix. Packing, block formats, scales and adapters hide inside; never a TensorView of weights.
/// Made by Ops::make_linear over storage that the caller owns (so that ranks of a node can share packed weights).
class Linear : public WeightSink {
 public:
  virtual const LinearSpec& spec() const = 0;
};

/// A token embedding table [vocab_size rows, hidden_size], read by Ops::embed; made by Ops::make_embedding.
class Embedding : public WeightSink {
 public:
  virtual const LinearSpec& spec() const = 0;
};

}  // namespace tokenmill
