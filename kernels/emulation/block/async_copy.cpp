#include "kernels/emulation/block/async_copy.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/emulation/block/block.h"

namespace tokenmill::emulation {

namespace {

constexpr size_t kRingBytes = AsyncCopies::kMaxCopies * sizeof(AsyncCopy);

void make_ring(AsyncCopies& copies) {
  void* memory = mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  copies.copies = static_cast<AsyncCopy*>(memory);
}

/// memcpy and memset as the sanitizers see them: accesses of the thread that waits.
void complete(const AsyncCopy& copy) {
  std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.source_bytes));
  if (copy.source_bytes < copy.bytes) {
    std::memset(static_cast<char*>(copy.to) + copy.source_bytes, 0,
                static_cast<size_t>(copy.bytes - copy.source_bytes));
  }
}

void complete_until(AsyncCopies& copies, unsigned end) {
  for (; copies.first != end; ++copies.first) complete(copies.copies[copies.first % AsyncCopies::kMaxCopies]);
}

void check_copy(const void* to, const void* from, int bytes, int source_bytes, Site site) {
  if ((bytes != 4 && bytes != 8 && bytes != 16) || source_bytes < 0 || source_bytes > bytes) {
    fail(site, "cp.async of " + std::to_string(source_bytes) + " of " + std::to_string(bytes) +
                   " bytes; it copies 4, 8 or 16, and no more than that from the source");
  }
  const auto size = static_cast<size_t>(bytes);
  check_shared("cp.async", to, size, size, site);
  if (source_bytes == 0) return;
  if (reinterpret_cast<uintptr_t>(from) % size != 0) {
    fail(site, "cp.async: the global address is not a multiple of " + std::to_string(bytes));
  }
  if (sanitizer::is_poisoned(from, static_cast<size_t>(source_bytes))) {
    fail(site, "cp.async: the global address is out of bounds");
  }
}

}  // namespace

void start_async_copy(void* to, const void* from, int bytes, int source_bytes, Site site) {
  check_copy(to, from, bytes, source_bytes, site);
  AsyncCopies& copies = this_fiber().async_copies;
  if (!copies.copies) make_ring(copies);
  if (copies.end - copies.first == AsyncCopies::kMaxCopies) {
    fail(site, "cp.async: more than " + std::to_string(AsyncCopies::kMaxCopies) + " copies of one thread under way");
  }
  std::memset(to, 0xff, static_cast<size_t>(bytes));
  copies.copies[copies.end++ % AsyncCopies::kMaxCopies] = {to, from, bytes, source_bytes, site};
}

void commit_async_copies() {
  AsyncCopies& copies = this_fiber().async_copies;
  if (copies.end_group - copies.first_group == AsyncCopies::kMaxGroups) {
    complete_until(
        copies, copies.group_end[copies.first_group++ % AsyncCopies::kMaxGroups]);  // nobody waits for so old a group
  }
  copies.group_end[copies.end_group++ % AsyncCopies::kMaxGroups] = copies.end;
}

void wait_async_copies(int num_pending) {
  AsyncCopies& copies = this_fiber().async_copies;
  while (static_cast<int>(copies.end_group - copies.first_group) > num_pending) {
    complete_until(copies, copies.group_end[copies.first_group++ % AsyncCopies::kMaxGroups]);
  }
}

void wait_all_async_copies() {
  wait_async_copies(0);
  complete_until(this_fiber().async_copies, this_fiber().async_copies.end);
}

void check_async_copies_at_exit(const Fiber& fiber) {
  const AsyncCopies& copies = fiber.async_copies;
  const unsigned left = copies.end - copies.first;
  if (left == 0) return;
  fail(copies.copies[copies.first % AsyncCopies::kMaxCopies].site,
       "the thread exits with " + std::to_string(left) + " cp.async copies that it never waited for, this one first");
}

void free_async_copies(AsyncCopies& copies) {
  if (copies.copies) munmap(copies.copies, kRingBytes);
}

}  // namespace tokenmill::emulation
