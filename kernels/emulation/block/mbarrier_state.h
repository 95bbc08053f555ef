#pragma once
// The block's mbarriers and what copies behind the threads' backs. Internal to kernels/emulation/block.
#include <cstdint>
#include <string>

#include "kernels/emulation/block/sanitizer.h"
#include "kernels/emulation/block/site.h"
#include "kernels/emulation/block/tensor_copy.h"

namespace tokenmill::emulation {

struct MBarrier {
  const uint64_t* word;  // in shared memory; what it holds does not matter
  int num_arrivals;      // of each phase
  int pending;           // arrivals that this phase waits for
  int64_t bytes;         // of copies that this phase waits for
  unsigned phase;
  uint32_t waiting[32];  // lanes of each warp
};

/// One bulk or tensor copy under way.
struct BulkCopy {
  unsigned char* shared;
  unsigned char* global;  // of a bulk copy
  uint32_t bytes;
  bool is_store;
  bool is_tensor;
  TensorBox box;          // of a tensor copy
  int barrier;            // of a load: index of its mbarrier
  unsigned owner, group;  // of a store: thread and its group
  Site site;
};

struct AsyncState {
  static constexpr int kMaxBarriers = 128, kMaxCopies = 512;
  MBarrier barriers[kMaxBarriers];
  int num_barriers = 0;
  BulkCopy copies[kMaxCopies];
  int num_copies = 0;
  char ordered[kMaxBarriers][2] = {};  // TSan tokens of a barrier's even and odd phases
  char issued = 0, stored = 0;         // TSan tokens: thread -> copy, copy -> thread
  sanitizer::Stack engine;             // who copies, as TSan sees it
};

struct Block;
void start_async(Block& block);
/// The barrier that a load counts on; fails when it is none.
int barrier_for_copy(const uint64_t* word, Site site);
/// A load of the barrier has arrived.
void complete_bytes(Block& block, int barrier, uint32_t bytes);
/// Runs one load that is under way; false when there is none.
bool run_one_load(Block& block);
/// Why a block that has ended must not have: copies under way. Empty: all is well.
std::string check_async_at_end(const Block& block);
/// For a deadlock report: the barriers that threads wait at, and what for.
std::string describe_waited_barriers(const Block& block);

}  // namespace tokenmill::emulation
