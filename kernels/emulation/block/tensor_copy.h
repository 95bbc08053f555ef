#pragma once
// Tensor maps and the copies by them (TMA). The 128 bytes of a CUtensorMap hold the emulator's own record.
#include <cuda.h>

#include <cstdint>

#include "kernels/emulation/block/site.h"

namespace tokenmill::emulation {

/// A box of a tensor: its map (a copy: the thread that gave it may leave first) and the coordinates of its first
/// element, innermost first.
struct TensorBox {
  CUtensorMap map;
  int coordinates[5];
};

/// What cuTensorMapEncodeTiled does; the runtime hands it out as the driver's entry point. Checks what the driver
/// checks, and refuses with CUDA_ERROR_NOT_SUPPORTED what is not emulated: interleaved layouts, element strides, NaN
/// fill, atoms.
CUresult encode_tensor_map(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                           const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                           const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                           CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

/// cp.async.bulk.tensor.Nd: a box to shared memory (what lies outside the tensor becomes 0; the barrier counts the
/// whole box), or from it (what lies outside is left out; ends with commit_bulk_stores and wait_bulk_stores).
void start_tensor_load(void* to, const CUtensorMap* map, int rank, const int* coordinates, uint64_t* barrier,
                       Site site);
void start_tensor_store(const void* from, const CUtensorMap* map, int rank, const int* coordinates, Site site);

/// Fails unless the map is one, of this rank, and its box fits the shared array.
TensorBox check_box(const char* what, const void* shared, const CUtensorMap* map, int rank, const int* coordinates,
                    Site site);
/// Bytes of the map's box.
uint32_t box_bytes(const CUtensorMap& map);
/// Moves a box now. Internal: mbarrier.cpp decides when.
void move_box(const TensorBox& box, unsigned char* shared, uint32_t shared_offset, bool is_store);

}  // namespace tokenmill::emulation
