// embed, gather_rows: rows of one matrix into rows of another; copy_pieces: what a step brings in and out; semantics in
// kernels/ops.h.
// Work:   one block per row, threads stride over it in words of 16 bytes where rows are aligned, else of 2.
//         copy_pieces: some blocks per piece, threads stride over it in words of 4 bytes. They reach pinned host memory
//         themselves, and the list of pieces is a kernel argument: a step's hundreds of pieces are a few launches.
// Bytes:  2 T * hidden_size elements; pieces once over the bus.
// Limits: any width. Not yet measured on a device.
#include <algorithm>

#include "kernels/cuda/cuda_linear.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/fault.cuh"
#include "kernels/cuda/launch.h"

namespace tokenmill::cuda {
namespace {

constexpr int kThreads = 128;

/// Rows of Word: what a row index leads to.
template <typename Word>
struct Rows {
  Word* data;
  int64_t stride;  // words
  int64_t count;
  int width;  // words
};

template <typename Word>
__device__ __forceinline__ void copy_row(Word* out, const Word* in, int width) {
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) out[i] = in[i];
}

template <typename Word>
__global__ void gather_rows_kernel(Rows<Word> out, Rows<const Word> x, const int32_t* rows, FaultWord fault) {
  const int32_t source = rows[blockIdx.x];
  if (source < 0 || source >= x.count) {
    if (threadIdx.x == 0) fault.report(Fault::kRowOutside, source, x.count);
    return;
  }
  copy_row(out.data + blockIdx.x * out.stride, x.data + source * x.stride, out.width);
}

/// minus_zero: a word of negative zeros of the table's dtype.
template <typename Word>
__global__ void embed_kernel(Rows<Word> out, Rows<const Word> table, const int32_t* token_ids,
                             const int32_t* last_token, int num_slots, int64_t first_id, Word minus_zero) {
  int32_t id = token_ids[blockIdx.x];
  if (id < 0) id = -1 - id < num_slots ? last_token[-1 - id] : -1;
  Word* row = out.data + blockIdx.x * out.stride;
  const int64_t index = id - first_id;
  if (index >= 0 && index < table.count) {
    copy_row(row, table.data + index * table.stride, out.width);
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < out.width; i += kThreads) row[i] = minus_zero;
  }
}

/// One launch's list, by value.
struct Pieces {
  static constexpr int kMost = 128;  // 3 KiB of the 4 that arguments may have
  CopyPiece list[kMost];
};

__global__ void copy_pieces_kernel(Pieces pieces) {
  const CopyPiece& piece = pieces.list[blockIdx.x];
  auto* to = static_cast<uint32_t*>(piece.destination);
  const auto* from = static_cast<const uint32_t*>(piece.source);
  const int64_t words = piece.num_bytes / 4, stride = int64_t{kThreads} * gridDim.y;
  for (int64_t i = int64_t{kThreads} * blockIdx.y + threadIdx.x; i < words; i += stride) to[i] = from[i];
}

template <typename Word>
Rows<Word> as_rows(const TensorView& view) {
  const int64_t per_word = static_cast<int64_t>(sizeof(Word)) / dtype_size(view.dtype());
  return {.data = static_cast<Word*>(view.data()),
          .stride = view.row_stride() / per_word,
          .count = view.rows(),
          .width = static_cast<int>(view.cols() / per_word)};
}

/// Calls function.operator()<Word>() with the widest of 16, 4 and 2 bytes that both matrices' rows are made of.
template <typename Function>
void dispatch_words(const TensorView& a, const TensorView& b, Function&& function) {
  const int64_t row_bytes = a.cols() * dtype_size(a.dtype());
  if (row_bytes % 16 == 0 && all_aligned({a, b})) return function.template operator()<uint4>();
  if (dtype_size(a.dtype()) == 4) return function.template operator()<uint32_t>();
  return function.template operator()<uint16_t>();
}

template <typename Word>
Word minus_zero_word(DType dtype) {
  const auto sign = static_cast<uint16_t>(0x8000);  // of bfloat16 and float16
  uint16_t halves[sizeof(Word) / 2];
  for (size_t i = 0; i < sizeof(Word) / 2; ++i) halves[i] = dtype == DType::kF32 && i % 2 == 0 ? uint16_t{0} : sign;
  Word word;
  memcpy(&word, halves, sizeof(word));
  return word;
}

}  // namespace

void CudaOps::do_copy_pieces(std::span<const CopyPiece> pieces) {
  constexpr int64_t kBytesPerBlock = 8192, kMostBlocks = 16;  // of a piece
  while (!pieces.empty()) {
    const auto part = pieces.first(std::min<size_t>(pieces.size(), Pieces::kMost));
    Pieces argument{};
    std::ranges::copy(part, argument.list);
    const int64_t longest = std::ranges::max(part, {}, &CopyPiece::num_bytes).num_bytes;
    gpu::Launch launch = row_launch(std::ssize(part), kThreads, "copy_pieces");
    launch.grid.y = static_cast<unsigned>(std::clamp<int64_t>(longest / kBytesPerBlock, 1, kMostBlocks));
    TM_CUDA(gpu::launch(copy_pieces_kernel, launch, argument));
    pieces = pieces.subspan(part.size());
  }
}

void CudaOps::do_gather_rows(TensorView out, TensorView x, TensorView rows) {
  dispatch_words(out, x, [&]<typename Word>() {
    TM_CUDA(gpu::launch(gather_rows_kernel<Word>, row_launch(out.rows(), kThreads, "gather_rows"), as_rows<Word>(out),
                        as_rows<const Word>(x), device_data<int32_t>(rows), fault_word()));
  });
}

void CudaOps::do_embed(TensorView out, const Embedding& table, TensorView token_ids, TensorView last_token,
                       int64_t first_id) {
  const TensorView rows = device_matrix(table);
  dispatch_words(out, rows, [&]<typename Word>() {
    TM_CUDA(gpu::launch(embed_kernel<Word>, row_launch(out.rows(), kThreads, "embed"), as_rows<Word>(out),
                        as_rows<const Word>(rows), device_data<int32_t>(token_ids), device_data<int32_t>(last_token),
                        last_token.cols(), first_id, minus_zero_word<Word>(out.dtype())));
  });
}

}  // namespace tokenmill::cuda
