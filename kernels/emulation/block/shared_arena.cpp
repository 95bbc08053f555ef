#include "kernels/emulation/block/shared_arena.h"

#include <sys/mman.h>

#include <cstdlib>
#include <string>

#include "kernels/emulation/block/block.h"
#include "kernels/emulation/block/shared_memory.h"

namespace tokenmill::emulation {

namespace {

constexpr size_t kArenaBytes = 1 << 20;
constexpr size_t kRedZone = 256;  // before each array, and behind the last

}  // namespace

SharedArena::~SharedArena() {
  if (!base_) return;
  sanitizer::unpoison(base_, kArenaBytes);
  munmap(base_, kArenaBytes);
}

void SharedArena::start(size_t dynamic_bytes) {
  if (!base_) {
    void* memory =
        mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    base_ = static_cast<unsigned char*>(memory);
    sanitizer::poison(base_, kArenaBytes);
  }
  used_ = 0;
  num_arrays_ = 0;
  static_bytes_ = 0;
  dynamic_bytes_ = dynamic_bytes;
  // 1024: what the device gives an array declared with that alignment, and what swizzled tiles need.
  dynamic_offset_ = carve(dynamic_bytes, 1024);
}

void SharedArena::finish() { sanitizer::poison(base_, used_); }

size_t SharedArena::carve(size_t size, size_t alignment) {
  const size_t offset = (used_ + kRedZone + alignment - 1) / alignment * alignment;
  used_ = offset + size;
  sanitizer::unpoison(base_ + offset, size);
  sanitizer::quiet_fill(base_ + offset, 0xff, size);  // NaN in every float format: uninitialised reads show
  return offset;
}

void* SharedArena::find_or_make(const void* key, size_t size, size_t alignment, Site site) {
  for (int i = 0; i < num_arrays_; ++i) {
    if (arrays_[i].key == key) return base_ + arrays_[i].offset;
  }
  static_bytes_ += size;
  if (static_bytes_ > kMaxStaticShared) {
    fail(site, "static shared memory grows to " + std::to_string(static_bytes_) + " bytes; at most " +
                   std::to_string(kMaxStaticShared) + " are allowed, use dynamic shared memory");
  }
  if (static_bytes_ + dynamic_bytes_ > kMaxBlockShared) {
    fail(site, "static and dynamic shared memory are " + std::to_string(static_bytes_ + dynamic_bytes_) +
                   " bytes; a block has at most " + std::to_string(kMaxBlockShared));
  }
  if (num_arrays_ == kMaxArrays) fail(site, "more than 64 shared arrays in one kernel; join some in a struct");
  const size_t offset = carve(size, alignment < 16 ? 16 : alignment);
  arrays_[num_arrays_++] = {key, offset};
  return base_ + offset;
}

bool SharedArena::contains(const void* p, size_t size) const {
  const auto* first = static_cast<const unsigned char*>(p);
  return first >= base_ && first + size <= base_ + used_ && !sanitizer::is_poisoned(p, size);
}

void check_shared(const char* what, const void* p, size_t size, size_t alignment, Site site) {
  if (!this_block().shared.contains(p, size)) {
    fail(site, std::string(what) + ": " + std::to_string(size) +
                   " bytes are not inside one shared array of this block (a global address, or out of bounds)");
  }
  if (reinterpret_cast<uintptr_t>(p) % alignment != 0) {
    fail(site, std::string(what) + ": the shared address is not a multiple of " + std::to_string(alignment));
  }
}

void* shared_array(const void* key, size_t size, size_t alignment, Site site) {
  return this_block().shared.find_or_make(key, size, alignment, site);
}

unsigned char* dynamic_shared() { return this_block().shared.dynamic(); }

uint32_t shared_address(const void* p, Site site) {
  check_shared("a shared address", p, 1, 1, site);
  return static_cast<uint32_t>(static_cast<const unsigned char*>(p) - this_block().shared.base());
}

}  // namespace tokenmill::emulation
