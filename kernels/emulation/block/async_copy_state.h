#pragma once
// One thread's cp.async copies under way. Internal to kernels/emulation/block.
#include "kernels/emulation/block/site.h"

namespace tokenmill::emulation {

struct AsyncCopy {
  void* to;
  const void* from;
  int bytes, source_bytes;
  Site site;
};

/// Two rings; the counters only grow.
struct AsyncCopies {
  static constexpr unsigned kMaxCopies = 1024, kMaxGroups = 64;
  AsyncCopy* copies = nullptr;  // [kMaxCopies], made when the thread first copies
  unsigned first = 0, end = 0;
  unsigned group_end[kMaxGroups] = {};  // `end` at the commit
  unsigned first_group = 0, end_group = 0;
};

struct Fiber;
/// Fails when the thread leaves the kernel with copies that it has not waited for.
void check_async_copies_at_exit(const Fiber& fiber);
void free_async_copies(AsyncCopies& copies);

}  // namespace tokenmill::emulation
