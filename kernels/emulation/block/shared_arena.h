#pragma once
// A block's shared memory: one range, in which arrays lie between red zones. Internal to kernels/emulation/block.
#include <cstddef>
#include <cstdint>

#include "kernels/emulation/block/site.h"

namespace tokenmill::emulation {

constexpr size_t kMaxStaticShared = 48 << 10;
constexpr size_t kMaxBlockShared = 227 << 10;  // what a block can have in all on compute capability 9.0

class SharedArena {
 public:
  ~SharedArena();

  /// Starts a block: forgets all arrays and makes one of `dynamic_bytes`.
  void start(size_t dynamic_bytes);
  /// Ends a block: nothing of it may be touched any more.
  void finish();

  unsigned char* dynamic() const { return base_ + dynamic_offset_; }
  /// The array of a declaration, made when the block's first thread reaches it.
  void* find_or_make(const void* key, size_t size, size_t alignment, Site site);

  unsigned char* base() const { return base_; }
  /// Whether [p, p + size) lies in an array of this block (in the used part, where ASan does not know better).
  bool contains(const void* p, size_t size) const;

 private:
  size_t carve(size_t size, size_t alignment);

  struct Array {
    const void* key;
    size_t offset;
  };
  static constexpr int kMaxArrays = 64;

  unsigned char* base_ = nullptr;
  size_t used_ = 0, dynamic_offset_ = 0, static_bytes_ = 0, dynamic_bytes_ = 0;
  Array arrays_[kMaxArrays];
  int num_arrays_ = 0;
};

/// Fails unless [p, p + size) is aligned and inside one array of this block's shared memory. `what` names the
/// instruction.
void check_shared(const char* what, const void* p, size_t size, size_t alignment, Site site);

}  // namespace tokenmill::emulation
