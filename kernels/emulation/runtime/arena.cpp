#include "kernels/emulation/runtime/arena.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#ifdef TOKENMILL_EMULATION_ASAN
extern "C" void __asan_poison_memory_region(const volatile void* address, size_t size);
extern "C" void __asan_unpoison_memory_region(const volatile void* address, size_t size);
#endif

namespace tokenmill::emulation {
namespace {

/// Addresses past a piece that belong to none.
constexpr size_t kGap = 1024;
/// Taking memory away page by page costs milliseconds for a few hundred MiB, by huge pages microseconds.
constexpr size_t kPage = size_t{2} << 20;

void forbid([[maybe_unused]] void* address, [[maybe_unused]] size_t num_bytes) {
#ifdef TOKENMILL_EMULATION_ASAN
  __asan_poison_memory_region(address, num_bytes);
#endif
}

void allow([[maybe_unused]] void* address, [[maybe_unused]] size_t num_bytes) {
#ifdef TOKENMILL_EMULATION_ASAN
  __asan_unpoison_memory_region(address, num_bytes);
#endif
}

size_t rounded_up(size_t num_bytes) {
  return (num_bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
}

void protect(char* start, size_t num_bytes, int protection) {
  if (num_bytes == 0 || mprotect(start, num_bytes, protection) == 0) return;
  std::perror("the emulated device's memory cannot be protected");
  std::abort();
}

}  // namespace

Arena::Arena(size_t num_bytes) : num_bytes_(num_bytes) {
  void* memory = mmap(nullptr, num_bytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::fprintf(stderr, "no %zu bytes of addresses for the memory of an emulated device\n", num_bytes);
    std::abort();
  }
  const auto address = (reinterpret_cast<uintptr_t>(memory) + kPage - 1) / kPage * kPage;
  start_ = reinterpret_cast<char*>(address);
  madvise(start_, num_bytes, MADV_HUGEPAGE);  // advice: may be refused
}

void* Arena::take(size_t num_bytes) {
  const size_t wanted = rounded_up(num_bytes) + kGap;
  size_t offset = kGap;
  for (const auto& [begin, bytes] : pieces_) {
    if (begin - offset >= wanted) break;
    offset = begin + rounded_up(bytes) + kGap;
  }
  if (offset + wanted > num_bytes_) return nullptr;
  pieces_[offset] = num_bytes;
  const size_t end = (offset + wanted + kPage - 1) / kPage * kPage;
  if (end > touched_) {
    touched_ = end;
    if (open_) protect(start_, touched_, PROT_READ | PROT_WRITE);
  }
  forbid(start_ + offset - kGap, kGap + wanted);
  allow(start_ + offset, num_bytes);
  return start_ + offset;
}

void Arena::give_back(void* pointer) {
  const auto piece = pieces_.find(static_cast<size_t>(static_cast<char*>(pointer) - start_));
  forbid(pointer, piece->second);
  pieces_.erase(piece);
}

void Arena::open() {
  if (!open_) protect(start_, touched_, PROT_READ | PROT_WRITE);
  open_ = true;
}

void Arena::close() {
  if (open_) protect(start_, touched_, PROT_NONE);
  open_ = false;
}

}  // namespace tokenmill::emulation
