#pragma once
// Tiles of 16-bit elements in shared memory and the fragments of m16n8k16 products.
#include <cstring>

#include "kernels/cuda/ptx.h"

namespace tokenmill::cuda {

/// Tiles have rows of kChunks chunks of 16 bytes. Chunks of a row change places with the row, so that eight rows of one
/// chunk (ldmatrix) lie in different banks without gaps between rows. Offsets are bytes from the start of the block's
/// dynamic shared memory.
///
/// Of chunk 0 of a row; tile: offset of the tile, a multiple of 128.
template <int kChunks>
__device__ __forceinline__ int row_offset(int tile, int row) {
  static_assert(kChunks % 4 == 0);
  const int turn = kChunks % 8 == 0 ? row & 7 : (row >> 1) & 3;
  return tile + row * (kChunks * 16) + turn * 16;
}
/// Of another chunk of the row. A part of the chunk's number may have entered row by exclusive or already. One
/// instruction per constant chunk, from one register: not worth a register of its own in every thread.
template <int kChunks>
__device__ __forceinline__ int chunk_offset(int row, int chunk) {
  constexpr int kTurns = kChunks % 8 == 0 ? 8 : 4;
  return (row ^ (chunk % kTurns * 16)) + chunk / kTurns * (kTurns * 16);
}

template <typename T>
struct Mma;
template <>
struct Mma<__nv_bfloat16> {
  static constexpr uint32_t kOnes = 0x3f803f80;
  static __device__ __forceinline__ uint32_t pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof(bits));
    return bits;
  }
  static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const uint32_t b[2] = {b0, b1};
    ptx::mma_bf16(d, a, b);
  }
};
template <>
struct Mma<__half> {
  static constexpr uint32_t kOnes = 0x3c003c00;
  static __device__ __forceinline__ uint32_t pack(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof(bits));
    return bits;
  }
  static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const uint32_t b[2] = {b0, b1};
    ptx::mma_f16(d, a, b);
  }
};

/// A operands of 16 rows of a tile of rows x k. lane_row_a: what one lane needs; load_a: columns [16 * step, + 16).
template <int kChunks>
__device__ __forceinline__ int lane_row_a(int tile, int row, int lane) {
  return row_offset<kChunks>(tile, row + lane % 16) ^ (lane / 16 * 16);
}
template <int kChunks>
__device__ __forceinline__ void load_a(uint32_t (&a)[4], const unsigned char* shared, int lane_row, int step) {
  ptx::ldmatrix<4>(a, shared + chunk_offset<kChunks>(lane_row, 2 * step));
}

/// B operands of two k steps (registers 0, 1 and 2, 3), k is [32 * pair, + 32). From a tile of columns x k: columns are
/// rows [8 * tile_of_columns, + 8).
template <int kChunks>
__device__ __forceinline__ int lane_row_b(int tile, int lane) {
  return row_offset<kChunks>(tile, lane % 8) ^ (lane / 8 * 16);
}
template <int kChunks>
__device__ __forceinline__ void load_b_rows(uint32_t (&b)[4], const unsigned char* shared, int lane_row,
                                            int tile_of_columns, int pair) {
  ptx::ldmatrix<4>(b, shared + chunk_offset<kChunks>(lane_row, 4 * pair) + tile_of_columns * (8 * kChunks * 16));
}
/// From a tile of k x columns, lane_row its row `lane`: columns [8 * chunk, + 8).
template <int kChunks>
__device__ __forceinline__ void load_b_columns(uint32_t (&b)[4], const unsigned char* shared, int lane_row, int chunk,
                                               int pair) {
  ptx::ldmatrix<4, true>(b, shared + chunk_offset<kChunks>(lane_row, chunk) + pair * (32 * kChunks * 16));
}

}  // namespace tokenmill::cuda
