#pragma once
// Tensor maps for ptx::tensor_load and ptx::tensor_store.
#include "kernels/device/cuda.h"
#ifdef TOKENMILL_CUDA_EMULATED
#include "kernels/emulation/block/tensor_copy.h"
#endif

namespace tokenmill::gpu {

/// A row-major matrix in device memory, read and written in boxes of rows and columns. base and row_bytes are multiples
/// of 16.
struct MatrixBoxes {
  CUtensorMapDataType type;
  void* base;
  uint64_t rows, columns;  // elements
  uint64_t row_bytes;      // from one row to the next
  uint32_t box_rows, box_columns;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;  // the box's rows are then at most 128 bytes
};

/// Coordinates of the map are {column, row}. cudaErrorInvalidValue: the driver takes no such map;
/// cudaErrorNotSupported: it has no tensor maps.
inline cudaError_t make_tensor_map(CUtensorMap* map, const MatrixBoxes& m) {
  const cuuint64_t sizes[2] = {m.columns, m.rows}, strides[1] = {m.row_bytes};
  const cuuint32_t box[2] = {m.box_columns, m.box_rows}, element_strides[2] = {1, 1};
#ifdef TOKENMILL_CUDA_EMULATED
  auto* encode = &emulation::encode_tensor_map;
#else
  struct Entry {
    cudaError_t error;
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    Entry() {
      error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
      if (error == cudaSuccess && found != cudaDriverEntryPointSuccess) error = cudaErrorNotSupported;
    }
  };
  static const Entry entry;  // maps are made for every launch
  if (entry.error != cudaSuccess) return entry.error;
  auto* encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry.function);
#endif
  const CUresult result =
      encode(map, m.type, 2, m.base, sizes, strides, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, m.swizzle,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace tokenmill::gpu
