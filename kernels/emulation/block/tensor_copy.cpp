#include "kernels/emulation/block/tensor_copy.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/emulation/block/block.h"

namespace tokenmill::emulation {

namespace {

/// What a map's 128 bytes hold.
struct TensorRecord {
  static constexpr uint32_t kMagic = 0x544d4150;
  uint32_t magic;
  uint8_t rank, element_bytes, swizzle_bits, unused;  // swizzle_bits: address bits 7 and up that are mixed in, 0 to 3
  unsigned char* base;
  uint64_t sizes[5];    // elements
  uint64_t strides[4];  // bytes, of dimensions 1 and up
  uint16_t box[5];      // elements
};
static_assert(sizeof(TensorRecord) <= sizeof(CUtensorMap));

TensorRecord record_of(const CUtensorMap& map) {
  TensorRecord record;
  sanitizer::quiet_copy(&record, &map, sizeof record);
  return record;
}

int element_size(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
      return 4;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 8;
    default:
      return 0;
  }
}

int swizzle_bits_of(CUtensorMapSwizzle swizzle) {
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE:
      return 0;
    case CU_TENSOR_MAP_SWIZZLE_32B:
      return 1;
    case CU_TENSOR_MAP_SWIZZLE_64B:
      return 2;
    case CU_TENSOR_MAP_SWIZZLE_128B:
      return 3;
    default:
      return -1;
  }
}

/// Address bits 4 and up take in bits 7 and up: the rule of wgmma's descriptors too.
uint32_t swizzled(uint32_t address, int bits) { return address ^ ((address >> 7 & ((1u << bits) - 1)) << 4); }

bool valid_sizes(const TensorRecord& r, const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box) {
  for (int d = 0; d < r.rank; ++d) {
    if (sizes[d] == 0 || sizes[d] > (1ull << 32) || box[d] == 0 || box[d] > 256) return false;
    if (d > 0 && (strides[d - 1] % 16 != 0 || strides[d - 1] >= (1ull << 40))) return false;
  }
  const unsigned row_bytes = box[0] * r.element_bytes;
  return row_bytes % 16 == 0 && (r.swizzle_bits == 0 || row_bytes <= 16u << r.swizzle_bits);
}

/// The part of [first, first + count) that lies in [0, size).
struct Range {
  int64_t begin, end;
};
Range inside(int64_t first, int64_t count, uint64_t size) {
  return {std::clamp<int64_t>(-first, 0, count), std::clamp<int64_t>(static_cast<int64_t>(size) - first, 0, count)};
}

}  // namespace

CUresult encode_tensor_map(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                           const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                           const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                           CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  if (!map || rank < 1 || rank > 5 || !sizes || (rank > 1 && !strides) || !box || !element_strides) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool unit_strides = std::all_of(element_strides, element_strides + rank, [](cuuint32_t s) { return s == 1; });
  if (element_size(type) == 0 || swizzle_bits_of(swizzle) < 0 || !unit_strides ||
      interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  TensorRecord record{};
  record.magic = TensorRecord::kMagic;
  record.rank = static_cast<uint8_t>(rank);
  record.element_bytes = static_cast<uint8_t>(element_size(type));
  record.swizzle_bits = static_cast<uint8_t>(swizzle_bits_of(swizzle));
  record.base = static_cast<unsigned char*>(base);
  if (reinterpret_cast<uintptr_t>(base) % 16 != 0 || !valid_sizes(record, sizes, strides, box)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (cuuint32_t d = 0; d < rank; ++d) {
    record.sizes[d] = sizes[d];
    record.box[d] = static_cast<uint16_t>(box[d]);
    if (d > 0) record.strides[d - 1] = strides[d - 1];
  }
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &record, sizeof record);
  return CUDA_SUCCESS;
}

uint32_t box_bytes(const CUtensorMap& map) {
  const TensorRecord r = record_of(map);
  uint32_t bytes = r.element_bytes;
  for (int d = 0; d < r.rank; ++d) bytes *= r.box[d];
  return bytes;
}

TensorBox check_box(const char* what, const void* shared, const CUtensorMap* map, int rank, const int* coordinates,
                    Site site) {
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0)
    fail(site, std::string(what) + ": the tensor map is not 64-byte aligned");
  const TensorRecord r = record_of(*map);
  if (r.magic != TensorRecord::kMagic) fail(site, std::string(what) + ": these 128 bytes are no encoded tensor map");
  if (r.rank != rank) {
    fail(site, std::string(what) + ": " + std::to_string(rank) + " coordinates for a tensor map of rank " +
                   std::to_string(r.rank));
  }
  check_shared(what, shared, box_bytes(*map), 128, site);
  TensorBox box{};
  sanitizer::quiet_copy(&box.map, map, sizeof box.map);
  for (int d = 0; d < rank; ++d) box.coordinates[d] = coordinates[d];
  return box;
}

void move_box(const TensorBox& box, unsigned char* shared, uint32_t shared_offset, bool is_store) {
  const TensorRecord r = record_of(box.map);
  const uint32_t row_bytes = static_cast<uint32_t>(r.box[0]) * r.element_bytes;
  const Range columns = inside(box.coordinates[0], r.box[0], r.sizes[0]);
  const auto total = box_bytes(box.map);
  unsigned char row[256 * 8];
  for (uint32_t at = 0; at < total; at += row_bytes) {
    unsigned char* global = r.base + static_cast<int64_t>(box.coordinates[0]) * r.element_bytes;
    bool exists = columns.begin < columns.end;
    uint32_t index = at / row_bytes;
    for (int d = 1; d < r.rank; ++d) {
      const int64_t coordinate = box.coordinates[d] + static_cast<int64_t>(index % r.box[d]);
      index /= r.box[d];
      exists = exists && coordinate >= 0 && coordinate < static_cast<int64_t>(r.sizes[d]);
      global += coordinate * static_cast<int64_t>(r.strides[d - 1]);
    }
    const auto move_chunks = [&](bool to_shared) {
      for (uint32_t chunk = 0; chunk < row_bytes; chunk += 16) {
        unsigned char* place = shared + (swizzled(shared_offset + at + chunk, r.swizzle_bits) - shared_offset);
        if (to_shared) sanitizer::note_write(place, 16);
        if (!to_shared) sanitizer::note_read(place, 16);
        sanitizer::quiet_copy(to_shared ? place : row + chunk, to_shared ? row + chunk : place, 16);
      }
    };
    const auto first = static_cast<size_t>(columns.begin) * r.element_bytes;
    const auto count = static_cast<size_t>(std::max<int64_t>(columns.end - columns.begin, 0)) * r.element_bytes;
    if (is_store) {
      move_chunks(false);
      if (exists) std::memcpy(global + first, row + first, count);
    } else {
      sanitizer::quiet_fill(row, 0, row_bytes);
      if (exists) std::memcpy(row + first, global + first, count);
      move_chunks(true);
    }
  }
}

}  // namespace tokenmill::emulation
