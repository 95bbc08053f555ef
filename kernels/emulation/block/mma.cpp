#include "kernels/emulation/block/mma.h"

#include <utility>

#include "kernels/emulation/block/block.h"
#include "kernels/emulation/block/number_formats.h"

// Fragment layouts: PTX ISA, "Matrix Fragments for mma.m16n8k16" and "... mma.m16n8k32". group = lane / 4 and
// member = lane % 4 are their groupID and threadID_in_group.

namespace tokenmill::emulation {

namespace {

constexpr uint32_t kFullMask = 0xffffffff;

template <typename Sum>
struct MmaOperands {
  Sum* d;
  const uint32_t* a;
  const uint32_t* b;
  const Sum* c;
};

/// What the 16-bit or 8-bit elements of the registers mean.
struct Bf16 {
  using Bits = uint16_t;
  static float value(Bits bits) { return from_bf16(bits); }
};
struct F16 {
  using Bits = uint16_t;
  static float value(Bits bits) { return from_f16(bits); }
};
struct E4m3 {
  using Bits = uint8_t;
  static float value(Bits bits) { return from_e4m3(bits); }
};
struct E5m2 {
  using Bits = uint8_t;
  static float value(Bits bits) { return from_e5m2(bits); }
};
struct S8 {
  using Bits = uint8_t;
  static int32_t value(Bits bits) { return static_cast<int8_t>(bits); }
};

/// Element i of a register.
template <typename Element>
auto element(uint32_t bits, int i) {
  constexpr int kBits = 8 * sizeof(typename Element::Bits);
  return Element::value(static_cast<typename Element::Bits>(bits >> (kBits * i)));
}

template <typename Element, typename Sum>
void multiply(const WarpOperands& all, Site) {
  constexpr int kPerRegister = 4 / sizeof(typename Element::Bits);
  constexpr int kDepth = 8 * kPerRegister;  // K
  Sum a[16][kDepth], b[kDepth][8], c[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = *static_cast<const MmaOperands<Sum>*>(all.lanes[lane]);
    const int group = lane / 4, first = lane % 4 * kPerRegister;
    for (int i = 0; i < kPerRegister; ++i) {
      for (int r = 0; r < 4; ++r) {
        a[group + r % 2 * 8][first + i + r / 2 * kDepth / 2] = element<Element>(own.a[r], i);
      }
      for (int r = 0; r < 2; ++r) b[first + i + r * kDepth / 2][group] = element<Element>(own.b[r], i);
    }
    for (int i = 0; i < 4; ++i) c[group + i / 2 * 8][lane % 4 * 2 + i % 2] = own.c[i];
  }
  for (int m = 0; m < 16; ++m) {
    for (int k = 0; k < kDepth; ++k) {
      for (int n = 0; n < 8; ++n) c[m][n] += a[m][k] * b[k][n];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    Sum* d = static_cast<const MmaOperands<Sum>*>(all.lanes[lane])->d;
    for (int i = 0; i < 4; ++i) d[i] = c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
}

struct MatrixOperands {
  uint32_t* registers;
  unsigned char* row;  // of shared memory
  int num_matrices;
  bool transposed;
};

/// Where element `i` (0 or 1) of a lane's register lies in its 8 x 8 matrix of 16-bit elements.
unsigned char* place(const WarpOperands& all, int matrix, int lane, int i, bool transposed) {
  int row = lane / 4, column = lane % 4 * 2 + i;
  if (transposed) std::swap(row, column);
  return static_cast<const MatrixOperands*>(all.lanes[matrix * 8 + row])->row + column * 2;
}

template <bool kLoad>
void move_matrices(const WarpOperands& all, Site site) {
  const auto& first = *static_cast<const MatrixOperands*>(all.lanes[0]);
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = *static_cast<const MatrixOperands*>(all.lanes[lane]);
    if (own.num_matrices != first.num_matrices || own.transposed != first.transposed) {
      fail(site, "ldmatrix or stmatrix: lanes ask for different shapes");
    }
    for (int matrix = 0; matrix < first.num_matrices; ++matrix) {
      for (int i = 0; i < 2; ++i) {
        unsigned char* in_shared = place(all, matrix, lane, i, first.transposed);
        unsigned char* in_register = reinterpret_cast<unsigned char*>(own.registers + matrix) + 2 * i;
        __builtin_memcpy(kLoad ? in_register : in_shared, kLoad ? in_shared : in_register, 2);
      }
    }
  }
}

/// Lanes whose row takes part check it; the others' addresses are ignored, as on the device.
bool has_row(int num_matrices) { return static_cast<int>(current_thread->lane) < 8 * num_matrices; }

template <typename Element, typename Sum>
void meet_to_multiply(Sum* d, const uint32_t* a, const uint32_t* b, const Sum* c, Site site) {
  MmaOperands<Sum> operands{d, a, b, c};
  meet_warp(kFullMask, multiply<Element, Sum>, &operands, /*ordered=*/false, "mma.sync", site);
}

}  // namespace

void mma(MmaType type, float* d, const uint32_t* a, const uint32_t* b, const float* c, Site site) {
  switch (type) {
    case MmaType::kBf16:
      return meet_to_multiply<Bf16>(d, a, b, c, site);
    case MmaType::kF16:
      return meet_to_multiply<F16>(d, a, b, c, site);
    case MmaType::kE4m3:
      return meet_to_multiply<E4m3>(d, a, b, c, site);
    case MmaType::kE5m2:
      return meet_to_multiply<E5m2>(d, a, b, c, site);
  }
}

void mma_s8(int32_t* d, const uint32_t* a, const uint32_t* b, const int32_t* c, Site site) {
  // Sums wrap: unsigned arithmetic.
  meet_to_multiply<S8>(reinterpret_cast<uint32_t*>(d), a, b, reinterpret_cast<const uint32_t*>(c), site);
}

void load_matrices(uint32_t* registers, const void* row, int num_matrices, bool transposed, Site site) {
  if (has_row(num_matrices)) {
    check_shared("ldmatrix", row, 16, 16, site);
    sanitizer::note_read(row, 16);
  }
  MatrixOperands operands{registers, static_cast<unsigned char*>(const_cast<void*>(row)), num_matrices, transposed};
  meet_warp(kFullMask, move_matrices<true>, &operands, /*ordered=*/false, "ldmatrix", site);
}

void store_matrices(const uint32_t* registers, void* row, int num_matrices, bool transposed, Site site) {
  if (has_row(num_matrices)) {
    check_shared("stmatrix", row, 16, 16, site);
    sanitizer::note_write(row, 16);
  }
  MatrixOperands operands{const_cast<uint32_t*>(registers), static_cast<unsigned char*>(row), num_matrices, transposed};
  meet_warp(kFullMask, move_matrices<false>, &operands, /*ordered=*/false, "stmatrix", site);
}

}  // namespace tokenmill::emulation
